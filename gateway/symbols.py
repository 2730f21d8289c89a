"""Signs that are read as words, and Greek letters. Data and rules of `normalize`. Pure."""

from __future__ import annotations

import unicodedata
from typing import Final

from gateway.scene import Reading, Scene, is_han, is_latin, one

_SIGNS: Final[dict[str, tuple[str, str]]] = {
    "<=": ("less than or equal to", "小于等于"), ">=": ("greater than or equal to", "大于等于"),
    "!=": ("not equal to", "不等于"), "==": ("equals", "等于"), "->": ("to", "到"), "=>": ("to", "到"),
    "&&": ("and", "和"), "+/-": ("plus or minus", "正负"),
    "&": ("and", "和"), "@": ("at", "艾特"), "#": ("number", "井号"), "+": ("plus", "加"),
    "=": ("equals", "等于"), "<": ("less than", "小于"), ">": ("greater than", "大于"),
    "≤": ("less than or equal to", "小于等于"), "≥": ("greater than or equal to", "大于等于"),
    "≠": ("not equal to", "不等于"), "≈": ("approximately", "约等于"), "≡": ("is identical to", "恒等于"),
    "±": ("plus or minus", "正负"), "×": ("times", "乘"), "÷": ("divided by", "除以"), "✕": ("times", "乘"),
    "✖": ("times", "乘"), "√": ("square root of", "根号"), "∞": ("infinity", "无穷大"), "∑": ("sum", "求和"),
    "→": ("to", "到"), "⇒": ("to", "到"), "∈": ("in", "属于"), "∝": ("proportional to", "正比于"),
    "%": ("percent", "百分之"), "‰": ("per mille", "千分之"), "°": ("degrees", "度"),
    "°C": ("degrees Celsius", "摄氏度"), "°F": ("degrees Fahrenheit", "华氏度"),
    "$": ("dollars", "美元"), "€": ("euros", "欧元"), "£": ("pounds", "英镑"), "¥": ("yuan", "元"),
    "¢": ("cents", "美分"), "₩": ("won", "韩元"), "₹": ("rupees", "卢比"), "₽": ("rubles", "卢布"),
    "₿": ("bitcoin", "比特币"), "§": ("section", "节"), "©": ("copyright", "版权所有"),
    "®": ("registered", "注册商标"), "™": ("trademark", "商标"),
    "∆": ("delta", "德尔塔"), "∂": ("partial", "偏"),
    "∫": ("integral", "积分"), "∴": ("therefore", "所以"), "∵": ("because", "因为"),
    "∅": ("empty set", "空集"),
    "∩": ("intersection", "交"), "∪": ("union", "并"), "∠": ("angle", "角"), "♯": ("sharp", "升"),
    "♭": ("flat", "降"),
}  # fmt: skip
_GREEK: Final[dict[str, tuple[str, str]]] = {
    "α": ("alpha", "阿尔法"), "β": ("beta", "贝塔"), "γ": ("gamma", "伽马"), "δ": ("delta", "德尔塔"),
    "ε": ("epsilon", "艾普西隆"), "ζ": ("zeta", "泽塔"), "η": ("eta", "伊塔"), "θ": ("theta", "西塔"),
    "ι": ("iota", "约塔"), "κ": ("kappa", "卡帕"), "λ": ("lambda", "兰姆达"), "μ": ("mu", "缪"),
    "ν": ("nu", "纽"), "ξ": ("xi", "克西"), "ο": ("omicron", "奥密克戎"), "π": ("pi", "派"),
    "ρ": ("rho", "柔"), "σ": ("sigma", "西格马"), "ς": ("sigma", "西格马"), "τ": ("tau", "陶"),
    "υ": ("upsilon", "宇普西隆"), "φ": ("phi", "斐"), "χ": ("chi", "希"), "ψ": ("psi", "普西"),
    "ω": ("omega", "欧米伽"),
}  # fmt: skip
_GREEK_LATIN: Final = {
    "α": "a", "β": "b", "γ": "g", "δ": "d", "ε": "e", "ζ": "z", "η": "i", "θ": "th", "ι": "i",
    "κ": "k", "λ": "l", "μ": "m", "ν": "n", "ξ": "x", "ο": "o", "π": "p", "ρ": "r", "σ": "s",
    "ς": "s", "τ": "t", "υ": "y", "φ": "f", "χ": "ch", "ψ": "ps", "ω": "o",
}  # fmt: skip
_LONGEST: Final = max(map(len, _SIGNS))


def sign(scene: Scene, at: int) -> Reading | None:
    """The longest sign that stands there."""
    for length in range(_LONGEST, 0, -1):
        text = scene.chars[at : at + length]
        if len(text) == length and text in _SIGNS:
            if text == "#" and scene.base == "zh" and scene.at(at + 1).isdigit():
                return one(at + 1, "号", "zh")
            if text == "#" and not scene.at(at + 1).isdigit():
                return one(at + 1, "井号", "zh") if scene.base == "zh" else one(at + 1, "hash", "en")
            language = scene.language(at, at + length)
            return one(at + length, _SIGNS[text][language == "zh"], language)
    return None


def greek(scene: Scene, at: int) -> Reading | None:
    """A letter alone by its name; a word of them, or of them and Latin ones, letter by letter."""
    first = _small(scene.at(at))
    if first not in _GREEK:
        return None
    end = at + 1
    while end < len(scene.chars) and (_small(scene.at(end)) in _GREEK or is_latin(scene.at(end))):
        end += 1
    left, right = scene.at(at - 1), scene.at(end)
    if end == at + 1 and not (left and is_latin(left)):
        language = "zh" if (right and is_han(right)) or (left and is_han(left)) else scene.language(at, end)
        return one(end, _GREEK[first][language == "zh"], language)
    said = "".join(_GREEK_LATIN.get(_small(char), char) for char in scene.chars[at:end])
    return one(end, said.capitalize() if scene.at(at).isupper() else said, "en")


def _small(char: str) -> str:
    return unicodedata.normalize("NFD", char.lower())[:1] if char > "\u0300" else char
