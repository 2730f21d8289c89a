"""Units and currencies by their signs, with their names in both languages. Data of `quantities`."""

from __future__ import annotations

from typing import Final, NamedTuple


class Unit(NamedTuple):
    """Names of a unit: one of it, several, and in Chinese."""

    one: str
    many: str
    zh: str


class Currency(NamedTuple):
    """Names of a currency, and of its hundredth in English ("": it has none that is used)."""

    one: str
    many: str
    cent: str
    cents: str
    zh: str


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _unit(one: str, zh: str, many: str = "") -> Unit:
    return Unit(one, many or one + "s", zh)


_UNITS: Final[dict[str, Unit]] = {
    "m": _unit("meter", "米"), "km": _unit("kilometer", "公里"), "cm": _unit("centimeter", "厘米"),
    "mm": _unit("millimeter", "毫米"), "μm": _unit("micrometer", "微米"), "um": _unit("micrometer", "微米"),
    "nm": _unit("nanometer", "纳米"), "dm": _unit("decimeter", "分米"),
    "kg": _unit("kilogram", "千克"), "g": _unit("gram", "克"), "mg": _unit("milligram", "毫克"),
    "μg": _unit("microgram", "微克"), "t": _unit("ton", "吨"),
    "L": _unit("liter", "升"), "l": _unit("liter", "升"), "ml": _unit("milliliter", "毫升"),
    "mL": _unit("milliliter", "毫升"), "cc": _unit("cubic centimeter", "毫升"),
    "m^2": _unit("square meter", "平方米"), "km^2": _unit("square kilometer", "平方公里"),
    "cm^2": _unit("square centimeter", "平方厘米"), "mm^2": _unit("square millimeter", "平方毫米"),
    "m^3": _unit("cubic meter", "立方米"), "cm^3": _unit("cubic centimeter", "立方厘米"),
    "ft^2": Unit("square foot", "square feet", "平方英尺"), "m2": _unit("square meter", "平方米"),
    "m3": _unit("cubic meter", "立方米"), "km2": _unit("square kilometer", "平方公里"),
    "ha": _unit("hectare", "公顷"),
    "km/h": Unit("kilometer per hour", "kilometers per hour", "公里每小时"),
    "m/s": Unit("meter per second", "meters per second", "米每秒"),
    "m/s^2": Unit("meter per second squared", "meters per second squared", "米每二次方秒"),
    "kph": Unit("kilometer per hour", "kilometers per hour", "公里每小时"),
    "mph": Unit("mile per hour", "miles per hour", "英里每小时"),
    "kB": _unit("kilobyte", "千字节"), "KB": _unit("kilobyte", "千字节"), "MB": _unit("megabyte", "兆字节"),
    "GB": _unit("gigabyte", "吉字节"), "TB": _unit("terabyte", "太字节"), "PB": _unit("petabyte", "拍字节"),
    "KiB": _unit("kibibyte", "千字节"), "MiB": _unit("mebibyte", "兆字节"),
    "GiB": _unit("gibibyte", "吉字节"),
    "kbps": Unit("kilobit per second", "kilobits per second", "千比特每秒"),
    "Mbps": Unit("megabit per second", "megabits per second", "兆比特每秒"),
    "Gbps": Unit("gigabit per second", "gigabits per second", "吉比特每秒"),
    "Hz": Unit("hertz", "hertz", "赫兹"), "kHz": Unit("kilohertz", "kilohertz", "千赫兹"),
    "MHz": Unit("megahertz", "megahertz", "兆赫兹"), "GHz": Unit("gigahertz", "gigahertz", "吉赫兹"),
    "W": _unit("watt", "瓦"), "kW": _unit("kilowatt", "千瓦"), "MW": _unit("megawatt", "兆瓦"),
    "GW": _unit("gigawatt", "吉瓦"), "kWh": _unit("kilowatt hour", "千瓦时"), "V": _unit("volt", "伏"),
    "kV": _unit("kilovolt", "千伏"), "mAh": _unit("milliamp hour", "毫安时"), "mA": _unit("milliamp", "毫安"),
    "Ω": _unit("ohm", "欧姆"), "dB": _unit("decibel", "分贝"), "J": _unit("joule", "焦耳"),
    "kJ": _unit("kilojoule", "千焦"), "cal": _unit("calorie", "卡"), "kcal": _unit("kilocalorie", "千卡"),
    "Pa": _unit("pascal", "帕"), "kPa": _unit("kilopascal", "千帕"), "hPa": _unit("hectopascal", "百帕"),
    "MPa": _unit("megapascal", "兆帕"), "psi": Unit("psi", "psi", "磅每平方英寸"),
    "h": _unit("hour", "小时"), "hr": _unit("hour", "小时"), "hrs": _unit("hour", "小时"),
    "min": _unit("minute", "分钟"), "mins": _unit("minute", "分钟"), "s": _unit("second", "秒"),
    "sec": _unit("second", "秒"), "secs": _unit("second", "秒"), "ms": _unit("millisecond", "毫秒"),
    "μs": _unit("microsecond", "微秒"), "us": _unit("microsecond", "微秒"), "ns": _unit("nanosecond", "纳秒"),
    "mi": _unit("mile", "英里"), "ft": Unit("foot", "feet", "英尺"), "in": Unit("inch", "inches", "英寸"),
    "yd": _unit("yard", "码"), "lb": _unit("pound", "磅"), "lbs": _unit("pound", "磅"),
    "oz": _unit("ounce", "盎司"), "gal": _unit("gallon", "加仑"), "px": _unit("pixel", "像素"),
    "fps": Unit("frame per second", "frames per second", "帧每秒"),
    "rpm": Unit("revolution per minute", "revolutions per minute", "转每分"),
    "ppm": Unit("part per million", "parts per million", "百万分之一"),
    "°": _unit("degree", "度"), "°C": Unit("degree Celsius", "degrees Celsius", "摄氏度"),
    "°F": Unit("degree Fahrenheit", "degrees Fahrenheit", "华氏度"),
    "USD": Unit("US dollar", "US dollars", "美元"), "EUR": _unit("euro", "欧元"),
    "GBP": _unit("British pound", "英镑"),
    "CNY": Unit("yuan", "yuan", "元"), "RMB": Unit("yuan", "yuan", "元"),
    "JPY": Unit("yen", "yen", "日元"), "HKD": _unit("Hong Kong dollar", "港元"),
}  # fmt: skip
_CAPITALS: Final = ("KM", "Km", "KG", "Kg", "CM", "MM", "ML", "KPH", "MPH")
UNITS: Final = _UNITS | {sign: _UNITS[sign.lower()] for sign in _CAPITALS}
LONGEST_UNIT: Final = max(map(len, UNITS))
GLUED: Final = frozenset({"t", "s", "in", "m2", "m3", "us", "J", "l"})
"""Only right after the number: "5 in" and "2 s" are more often something else."""
DEGREES: Final = frozenset({"°C", "°F", "°"})

_DOLLAR: Final = Currency("dollar", "dollars", "cent", "cents", "美元")
CURRENCIES: Final[dict[str, Currency]] = {
    "US$": _DOLLAR, "$": _DOLLAR,
    "HK$": Currency("Hong Kong dollar", "Hong Kong dollars", "cent", "cents", "港元"),
    "A$": Currency("Australian dollar", "Australian dollars", "cent", "cents", "澳元"),
    "NT$": Currency("Taiwan dollar", "Taiwan dollars", "cent", "cents", "新台币"),
    "€": Currency("euro", "euros", "cent", "cents", "欧元"),
    "£": Currency("pound", "pounds", "penny", "pence", "英镑"),
    "¥": Currency("yuan", "yuan", "", "", "元"),
    "₩": Currency("won", "won", "", "", "韩元"),
    "₹": Currency("rupee", "rupees", "", "", "卢比"),
    "₽": Currency("ruble", "rubles", "", "", "卢布"),
    "₿": Currency("bitcoin", "bitcoins", "", "", "比特币"),
}  # fmt: skip
CURRENCY_SIGNS: Final = tuple(sorted(CURRENCIES, key=len, reverse=True))
CURRENCY_NAMES_ZH: Final = (
    "人民币", "美元", "美金", "欧元", "英镑", "日元", "港元", "港币", "韩元", "元", "块", "圆", "刀",
)  # fmt: skip
"""After an amount, these say the currency already."""

MEASURES_AFTER_TWO: Final = _words(
    """个 位 台 本 张 条 只 件 天 周 年 岁 小时 分钟 秒 刻钟 元 块 美元 欧元 英镑 美金 倍 万 亿 千 次
    遍 趟 回 场 种 类 些 辆 架 艘 部 家 间 座 栋 户 口 名 人 对 双 副 套 组 群 批 头 匹 棵 株 朵 颗
    粒 片 段 节 份 封 篇 首 句 杯 瓶 碗 盘 盒 包 袋 箱 桶 把 支 枝 根 面 扇 顶 门 项 款 米 公里 千米
    厘米 公斤 千克 斤 克 吨 升 毫升 亩 英里 点 分 室 厅 卧 步 圈 轮 届 半 星期 晚 夜 顿 餐 票 寸 尺
    摄氏度 字 页 样 方 边 侧 国 地 岸 桌 笔 通 声 针 盏 枚 滴 道 集 端 所 处 角"""
)
"""Before these 2 is 两."""
NOT_TWO: Final = _words("年级 分之 名次 点零 家庭 面体 元素 元论 次方 地址 人称")
"""Though they begin like a measure word, 2 is 二 before these."""
