/**
 * The words of the interface, in Chinese and English, and the language that is in use.
 *
 * `apply` fills every element that names a key: `data-i18n` its text, `data-i18n-label` its `aria-label`,
 * `data-i18n-placeholder` its placeholder. Knows nothing of sound or sockets.
 */

const STORAGE_KEY = "sayflow.language";

const EN = {
  headline: "Speech that starts before the text is finished.",
  lede: "Words stream in, sound streams out. Write something, or let it type the way a language model does.",
  language: "Language",
  composer: "Text to speak",
  samples: "Sample texts",
  sampleZh: "Chinese",
  sampleEn: "English",
  sampleMixed: "Mixed",
  mode: "How the text is sent",
  modeWhole: "All at once",
  modeTyped: "Type like a model",
  textLabel: "Text to speak",
  placeholder: "Write or paste what should be said …",
  readingLabel: "The text being spoken",
  voice: "Voice",
  speed: "Speed",
  rate: "Typing",
  rateUnit: "{n} tokens/s",
  speak: "Speak",
  stop: "Stop",
  edit: "Edit text",
  sayRest: "Say the rest",
  playback: "Playback",
  waveLabel: "Waveform of the sound being played",
  ttfa: "Time to first sound",
  buffer: "Buffer",
  lead: "Lead",
  underruns: "Underruns",
  packets: "Packets",
  bitrate: "Bit rate",
  foot: "Sayflow runs on your own machines.",
  footFormat: "{protocol} · {format} · {output}",
  outputWorklet: "AudioWorklet",
  outputScript: "script audio",
  token: "Access token",
  tokenHint: "This server asks for a token. It stays in this tab and is sent to this server only.",
  tokenWrong: "The server did not accept this token.",
  signIn: "Connect",
  dismiss: "Dismiss",
  linkConnecting: "Connecting",
  linkReady: "Connected",
  linkStarting: "Connected · engine starting",
  linkWaiting: "Reconnecting in {n} s",
  linkDenied: "Token needed",
  linkClosed: "Closed",
  phaseIdle: "Ready",
  phaseWaiting: "Waiting for the first sound",
  phaseSpeaking: "Speaking",
  phaseStopping: "Stopping",
  phaseDone: "Done",
  phaseStopped: "Stopped",
  outcomeStopped: "Stopped after {n} s. What was heard stands out, the rest is faint.",
  outcomeAll: "Stopped after {n} s. Everything had been said.",
  nothingToSay: "There is nothing to say in this text.",
  truncated: "A sentence was too long for the voice and was cut.",
  dropped: "A part of the text could not be said by this voice and was left out.",
  closed: "The connection to the server was lost. Trying again.",
  notYet: "The server does not answer, or is still starting. Trying again.",
  closed1011: "The server met an internal error and closed the connection. Trying again.",
  closed1012: "The server is restarting. The page reconnects by itself.",
  closed1013: "The server is too busy for another listener. Trying again in {n} s.",
  closed1009: "The server refused a message that was too big. Reconnecting.",
  deniedReason: "The server refused the connection: {reason}",
  retryAfter: "Try again in {n} s.",
  error: "The server reports: {message}",
  error_connection_lost: "The connection was lost while speaking.",
  error_engine_lost: "The speech engine stopped in mid-sentence and is being restarted. Please try again.",
  error_engine_error: "The speech engine could not say this text.",
  error_model_fault: "The speech engine could not say this text.",
  error_bad_audio: "The speech engine produced no usable sound for this text.",
  error_cannot_speak: "This voice cannot say this text.",
  error_overloaded: "All voices are taken at the moment.",
  error_busy: "All voices are taken at the moment.",
  error_unknown_voice: "The server no longer has this voice. Please choose another.",
  error_text_too_long: "The text is longer than the server accepts.",
  error_too_many_utterances: "Too many texts are being spoken on this connection.",
  error_slow_consumer: "This browser did not take the sound fast enough, so the server hung up. Reconnecting.",
  error_decoder_failed: "The browser could not decode the sound. From now on it is sent as PCM; please try again.",
  error_audio_failed: "The browser could not start its audio output.",
};

const ZH = {
  headline: "话还没写完，声音已经响起。",
  lede: "文字一路流入，语音同步流出。写一段话，或者让它像语言模型那样边写边说。",
  language: "界面语言",
  composer: "要说的文字",
  samples: "示例文字",
  sampleZh: "中文",
  sampleEn: "英文",
  sampleMixed: "中英混合",
  mode: "文字的发送方式",
  modeWhole: "一次发送",
  modeTyped: "像模型一样逐字写",
  textLabel: "要说的文字",
  placeholder: "写下或粘贴要说的话……",
  readingLabel: "正在说的文字",
  voice: "音色",
  speed: "语速",
  rate: "打字速度",
  rateUnit: "每秒 {n} 词元",
  speak: "开始说",
  stop: "停止",
  edit: "修改文字",
  sayRest: "说完剩下的",
  playback: "播放",
  waveLabel: "正在播放的声音波形",
  ttfa: "首音延迟",
  buffer: "缓冲",
  lead: "提前量",
  underruns: "断音",
  packets: "数据包",
  bitrate: "码率",
  foot: "Sayflow 运行在您自己的机器上。",
  footFormat: "{protocol} · {format} · {output}",
  outputWorklet: "AudioWorklet",
  outputScript: "脚本音频",
  token: "访问令牌",
  tokenHint: "服务器需要访问令牌。令牌只留在本标签页，只发给这台服务器。",
  tokenWrong: "服务器没有接受这个令牌。",
  signIn: "连接",
  dismiss: "关闭",
  linkConnecting: "正在连接",
  linkReady: "已连接",
  linkStarting: "已连接 · 引擎启动中",
  linkWaiting: "{n} 秒后重连",
  linkDenied: "需要令牌",
  linkClosed: "已断开",
  phaseIdle: "就绪",
  phaseWaiting: "等待第一个声音",
  phaseSpeaking: "正在说",
  phaseStopping: "正在停止",
  phaseDone: "说完了",
  phaseStopped: "已停止",
  outcomeStopped: "在 {n} 秒处停止。醒目的已经听到，浅淡的还没有说。",
  outcomeAll: "在 {n} 秒处停止，内容已经全部说完。",
  nothingToSay: "这段文字里没有可以说的内容。",
  truncated: "有一句话超过了音色的上限，被截短了。",
  dropped: "有一部分文字这个音色说不了，已略过。",
  closed: "与服务器的连接断开了，正在重试。",
  notYet: "服务器没有应答，或者还在启动，正在重试。",
  closed1011: "服务器内部出错并关闭了连接，正在重试。",
  closed1012: "服务器正在重启，页面会自动重新连接。",
  closed1013: "服务器太忙，暂时不能接待新的听众，{n} 秒后重试。",
  closed1009: "消息太大，被服务器拒绝，正在重新连接。",
  deniedReason: "服务器拒绝了连接：{reason}",
  retryAfter: "请在 {n} 秒后再试。",
  error: "服务器报告：{message}",
  error_connection_lost: "说话时连接断开了。",
  error_engine_lost: "语音引擎在半句话处停止，正在重启，请再试一次。",
  error_engine_error: "语音引擎没能说出这段文字。",
  error_model_fault: "语音引擎没能说出这段文字。",
  error_bad_audio: "语音引擎没有为这段文字生成可用的声音。",
  error_cannot_speak: "这个音色说不了这段文字。",
  error_overloaded: "现在所有的声音都在忙。",
  error_busy: "现在所有的声音都在忙。",
  error_unknown_voice: "服务器上没有这个音色了，请换一个。",
  error_text_too_long: "文字超过了服务器的长度上限。",
  error_too_many_utterances: "这个连接上同时说的内容太多了。",
  error_slow_consumer: "浏览器接收声音太慢，服务器断开了连接，正在重连。",
  error_decoder_failed: "浏览器没能解码声音，之后改用 PCM 传输，请再试一次。",
  error_audio_failed: "浏览器没能打开音频输出。",
};

const WORDS = { en: EN, zh: ZH };
const TAGS = { en: "en", zh: "zh-CN" };

export const SAMPLES = {
  zh: "您好，很高兴为您服务。您预订的航班明天早上八点四十分从上海虹桥起飞，十一点整到达北京。需要我帮您选一个靠窗的座位吗？",
  en: "Good morning! Your table for four is booked for half past seven on Friday. The terrace is heated, so you can sit outside even if the evening turns cold. Shall I send you a confirmation?",
  mixed: "您的 iPhone 已经发货，预计后天送到。The tracking number will be in your inbox in ten minutes. 如果有任何问题，随时告诉我，我马上帮您处理。",
};

/** The language of the interface: chosen before, or else the browser's. */
export function initialLanguage() {
  let stored = null;
  try {
    stored = localStorage.getItem(STORAGE_KEY);
  } catch {
    // Storage can be forbidden; then nothing is remembered.
  }
  if (stored in WORDS) return stored;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

let language = "en";

/** The words for `key`, with `{name}` filled in. Undefined for a key that does not exist. */
export function t(key, values = {}) {
  return WORDS[language][key]?.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}

export function currentLanguage() {
  return language;
}

/** Turn the whole page to `next`. */
export function apply(next, { remember = false } = {}) {
  language = next;
  document.documentElement.lang = TAGS[next];
  for (const element of document.querySelectorAll("[data-i18n]")) element.textContent = t(element.dataset.i18n);
  for (const element of document.querySelectorAll("[data-i18n-label]")) element.ariaLabel = t(element.dataset.i18nLabel);
  for (const element of document.querySelectorAll("[data-i18n-placeholder]")) {
    element.placeholder = t(element.dataset.i18nPlaceholder);
  }
  if (!remember) return;
  try {
    localStorage.setItem(STORAGE_KEY, next);
  } catch {
    // As above.
  }
}
