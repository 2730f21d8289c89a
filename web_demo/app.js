/**
 * The page: binds the controls to the session, the player and the view.
 *
 * Everything with a rule of its own is elsewhere: `session` (the socket), `speech` (one utterance), `audio` (sound),
 * `view` and `waveform` (pictures), `i18n` (words). `?pcm=1` asks for PCM, `?script=1` plays without a worklet.
 */

import { Player } from "./audio.js";
import { apply, currentLanguage, initialLanguage, SAMPLES, t } from "./i18n.js";
import { LinkView, storedToken } from "./link.js";
import { SUBPROTOCOL } from "./messages.js";
import { Session } from "./session.js";
import { Speech } from "./speech.js";
import { typeOut } from "./text.js";
import { Figures, Reading } from "./view.js";
import { Waveform } from "./waveform.js";

/** After the last word the text stays as it was read, for the eye to see the end. */
const LINGER_MS = 900;

const byId = (id) => document.getElementById(id);
const ui = Object.fromEntries(
  ["text", "reading", "speak", "stop", "voice", "speed", "rate", "notice", "outcome", "state"].map(
    (id) => [id, byId(id)],
  ),
);
const query = new URLSearchParams(location.search);
const forced = (name) => ["1", "true"].includes(query.get(name));

const reading = new Reading(ui.reading);
const figures = new Figures(byId);
const waveform = new Waveform(byId("wave"));
const player = new Player(observe, { pcm: forced("pcm"), script: forced("script") });
const session = new Session({ url: streamUrl(), token: storedToken() });

let speech = null;
let typing = null; // AbortController of what is being typed
let unsaid = ""; // text that a stop left over
let lingering = null;
let notice = null; // () => text, so that it can be told again in another language
let outcome = null;
let stopAtMs = null;
const link = new LinkView(session, tell);
const seen = {
  audibleFrames: 0,
  soundUntilFrame: 0,
  frame: 0,
  targetMs: null,
  stopToSilenceMs: null,
  stopToSilenceHeardMs: null,
};

function streamUrl() {
  const url = new URL("v1/stream", document.baseURI);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url;
}

// --- speaking ---------------------------------------------------------------------------------------------

async function speak(text) {
  if (session.state !== "ready" || text.trim() === "") return;
  tell(null);
  try {
    await player.start();
  } catch (error) {
    console.error(error);
    tell(() => t("error_audio_failed"));
    return;
  }
  if (session.state !== "ready") return; // lost while the audio device opened
  speech?.stop();
  typing?.abort();
  const pcm = player.format === "pcm";
  const utterance = session.speak({
    voice: ui.voice.value || null,
    speed: Number(ui.speed.value),
    format: player.format,
    sample_rate: pcm ? 48000 : null,
    alignment: "chars",
  });
  speech = new Speech(utterance, player);
  listen(speech, text);
  showReading();
  showFoot();
  await write(speech, text);
}

async function write(current, text) {
  if (document.querySelector("input[name=mode]:checked").value === "whole") {
    current.send(text);
    current.end();
    return;
  }
  typing = new AbortController();
  reading.writing = true;
  const written = await typeOut(text, {
    rate: Number(ui.rate.value),
    send: (piece) => current.send(piece),
    signal: typing.signal,
  });
  if (current !== speech) return;
  reading.writing = false;
  if (written) current.end();
}

function listen(current, text) {
  const points = Array.from(text);
  const hasWords = ([start, end]) => /[\p{L}\p{N}]/u.test(points.slice(start, end).join(""));
  let sent = 0;
  const on = (type, handler) =>
    current.addEventListener(type, ({ detail }) => {
      if (current === speech) handler(detail);
    });
  on("sent", (piece) => {
    sent += piece.length;
    reading.append(piece);
  });
  on("sentence", (sentence) => reading.addSentence(sentence));
  on("progress", ({ index, place }) => reading.progress(index, place));
  on("change", showSpeech);
  on("cancelled", ({ played_ms, text_spoken, text_remaining }) => {
    unsaid = text_remaining + text.slice(sent);
    reading.split(text_spoken, unsaid);
    const n = (played_ms / 1000).toFixed(1);
    outcome = () => t(unsaid.trim() === "" ? "outcomeAll" : "outcomeStopped", { n });
  });
  on("error", (error) => {
    typing?.abort();
    tell(() => errorText(error));
  });
  on("done", ({ truncated, dropped = [] }) => {
    if (truncated) tell(() => t("truncated"));
    else if (current.packets > 0 && dropped.some(hasWords)) tell(() => t("dropped"));
  });
  on("over", () => {
    typing?.abort();
    if (current.packets === 0 && !outcome && !notice) tell(() => t("nothingToSay"));
    figures.show(current);
    if (!outcome) lingering = setTimeout(showEditor, current.packets === 0 ? 0 : LINGER_MS);
    showSpeech();
  });
}

function stop() {
  if (!speech || speech.phase === "over") return;
  stopAtMs = performance.now();
  typing?.abort();
  speech.stop();
}

/** A report of the jitter buffer, about 60 times a second while there is sound. */
function observe(report) {
  Object.assign(seen, {
    audibleFrames: report.audibleFrames,
    soundUntilFrame: report.soundUntilFrame,
    frame: report.frame,
    targetMs: report.targetMs,
  });
  for (const { frame, silentFrame } of report.stops) {
    seen.stopToSilenceMs = (1000 * Math.max(0, silentFrame - frame)) / player.rate;
    if (stopAtMs !== null) seen.stopToSilenceHeardMs = player.heardAt(silentFrame) - stopAtMs;
    stopAtMs = null;
  }
  waveform.push(report.peaks);
  if (!speech) return;
  speech.observe(report);
  figures.show(speech);
}

// --- showing ----------------------------------------------------------------------------------------------

const busy = () => speech !== null && speech.phase !== "over";

function showReading() {
  clearTimeout(lingering);
  outcome = null;
  reading.clear();
  waveform.clear();
  ui.text.hidden = true;
  ui.reading.hidden = false;
  figures.show(speech);
  showSpeech();
}

function showEditor() {
  clearTimeout(lingering);
  if (busy()) return;
  outcome = null;
  const focused = document.activeElement === ui.reading;
  ui.reading.hidden = true;
  ui.text.hidden = false;
  if (focused) ui.text.focus({ preventScroll: true });
  showSpeech();
}

function showSpeech() {
  const phase = speech?.phase ?? "idle";
  const key = { waiting: "phaseWaiting", speaking: "phaseSpeaking", stopping: "phaseStopping" }[phase];
  const done = speech !== null && speech.packets > 0 && !outcome && !ui.reading.hidden;
  const words = t(key ?? (outcome ? "phaseStopped" : done ? "phaseDone" : "phaseIdle"));
  if (ui.state.textContent !== words) {
    ui.state.textContent = words;
    byId("status").textContent = words;
  }
  ui.state.dataset.phase = phase;
  waveform.live = phase === "speaking";
  if (busy()) reading.highlight(speech.sentence >= 0 ? speech.sentences[speech.sentence].index : -1);
  else if (done) reading.highlight(Infinity);
  if (!busy()) reading.writing = false;

  const hadFocus = document.activeElement === ui.speak || document.activeElement === ui.stop;
  ui.speak.hidden = busy();
  ui.stop.hidden = !busy();
  ui.speak.disabled = session.state !== "ready" || ui.text.value.trim() === "";
  if (hadFocus) (busy() ? ui.stop : ui.speak).focus({ preventScroll: true });

  ui.outcome.hidden = outcome === null;
  byId("outcome-text").textContent = outcome?.() ?? "";
  byId("rest").hidden = unsaid.trim() === "";
}

/** Show a message that stays until dismissed or answered; null takes it away. */
function tell(words) {
  notice = words;
  byId("notice-text").textContent = words?.() ?? "";
  ui.notice.hidden = words === null;
}

function errorText({ code, message, retry_after_ms: retryAfterMs }) {
  const words = t(`error_${code}`) ?? t("error", { message });
  const again = retryAfterMs ? t("retryAfter", { n: Math.ceil(retryAfterMs / 1000) }) : "";
  return currentLanguage() === "zh" ? words + again : `${words} ${again}`.trim();
}

function showFoot() {
  const format = player.format === "opus" ? "Opus · WebCodecs" : "PCM 48 kHz";
  const output = t(player.outputKind === "script" ? "outputScript" : "outputWorklet");
  byId("foot").textContent = player.outputKind
    ? t("footFormat", { protocol: SUBPROTOCOL, format, output })
    : SUBPROTOCOL;
}

function showSettings() {
  byId("speed-value").textContent = `${Number(ui.speed.value).toFixed(2)}×`;
  byId("rate-value").textContent = t("rateUnit", { n: ui.rate.value });
  byId("rate-field").hidden = document.querySelector("input[name=mode]:checked").value !== "typed";
}

function showVoices() {
  const { voices, default_voice: standard } = session.hello;
  const chosen = voices.some(({ id }) => id === ui.voice.value) ? ui.voice.value : standard;
  ui.voice.replaceChildren(
    ...voices.map(({ id, name, languages }) => {
      const label = languages.length > 0 ? `${name} · ${languages.join(" ").toUpperCase()}` : name;
      return new Option(label, id, false, id === chosen);
    }),
  );
  ui.voice.disabled = false;
}

function setLanguage(language, options) {
  apply(language, options);
  for (const button of document.querySelectorAll("[data-lang]")) {
    button.ariaPressed = String(button.dataset.lang === language);
  }
  byId("speak-key").textContent = navigator.platform.startsWith("Mac") ? "⌘↵" : "Ctrl ↵";
  if (Object.values(SAMPLES).includes(ui.text.value) || ui.text.value === "") ui.text.value = SAMPLES[language];
  if (notice) tell(notice);
  showSettings();
  link.show();
  showFoot();
  showSpeech();
}

// --- the connection ---------------------------------------------------------------------------------------

session.addEventListener("state", showSpeech);
session.addEventListener("hello", showVoices);
session.addEventListener("error", ({ detail }) => tell(() => errorText(detail)));

// --- the controls -----------------------------------------------------------------------------------------

ui.speak.addEventListener("click", () => speak(ui.text.value));
ui.stop.addEventListener("click", stop);
byId("rest").addEventListener("click", () => speak(unsaid));
byId("edit").addEventListener("click", () => {
  showEditor();
  ui.text.focus();
});
byId("notice-close").addEventListener("click", () => tell(null));
ui.text.addEventListener("input", showSpeech);
for (const control of [ui.speed, ui.rate]) control.addEventListener("input", showSettings);
for (const radio of document.querySelectorAll("input[name=mode]")) radio.addEventListener("change", showSettings);
for (const button of document.querySelectorAll("[data-lang]")) {
  button.addEventListener("click", () => setLanguage(button.dataset.lang, { remember: true }));
}
for (const chip of document.querySelectorAll("[data-sample]")) {
  chip.addEventListener("click", () => {
    stop();
    ui.text.value = SAMPLES[chip.dataset.sample];
    showEditor();
    showSpeech();
  });
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    speak(ui.text.value);
  } else if (event.key === "Escape") {
    stop();
  }
});

/** Read-only, for tests and for the curious. */
window.sayflow = Object.freeze({
  get counters() {
    return {
      state: speech?.phase ?? "idle",
      session: session.state,
      format: player.format,
      output: player.outputKind,
      ttfaMs: speech?.ttfaMs ?? null,
      underruns: speech?.underruns ?? 0,
      gapMs: speech?.gapMs ?? 0,
      playedMs: speech?.playedMs ?? 0,
      bufferedMs: speech?.bufferedMs ?? 0,
      packets: speech?.packets ?? 0,
      sentence: speech?.sentence ?? -1,
      decodedFrames: player.decodedFrames,
      audibleFrames: seen.audibleFrames,
      targetMs: seen.targetMs,
      // On the clock of the audio context; null while there is sound.
      silentSinceMs: seen.soundUntilFrame < seen.frame ? (1000 * seen.soundUntilFrame) / player.rate : null,
      // By the audio context's frames; and by the page's clock, with the latency of the audio device.
      stopToSilenceMs: seen.stopToSilenceMs,
      stopToSilenceHeardMs: seen.stopToSilenceHeardMs,
    };
  },
});

setLanguage(initialLanguage());
session.connect();
