/**
 * What the page says about the connection: the light at the top, the form for a token, why it was lost.
 *
 * Listens to a `Session`; messages for the notice go through `tell`, so that one place owns it.
 */

import { t } from "./i18n.js";

const TOKEN_KEY = "sayflow.token";
const COUNTDOWN_MS = 500;

const byId = (id) => document.getElementById(id);

/** The token of this tab; it is not kept longer. */
export const storedToken = () => sessionStorage.getItem(TOKEN_KEY);

function lossText({ code, reason, greeted, n }) {
  if (reason === "slow_consumer") return t("error_slow_consumer");
  return t(`closed${code}`, { n }) ?? t(greeted ? "closed" : "notYet");
}

export class LinkView {
  #session;
  #tell;
  #told = false; // the notice at hand is ours
  #state = "idle";
  #retryAt = 0;
  #timer = null;
  #form = byId("auth");
  #token = byId("token");

  /** @param {(words: (() => string) | null) => void} tell shows words in the notice; null takes them away */
  constructor(session, tell) {
    this.#session = session;
    this.#tell = tell;
    session.addEventListener("state", ({ detail }) => this.#change(detail));
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#authenticate();
    });
  }

  /** Draw the light, again each half second while a retry is counted down. */
  show() {
    clearTimeout(this.#timer);
    const engines = Object.values(this.#session.hello?.engines ?? {});
    const starting = this.#state === "ready" && !engines.includes("ready");
    const keys = {
      idle: "linkConnecting",
      connecting: "linkConnecting",
      asking: "linkDenied",
      ready: starting ? "linkStarting" : "linkReady",
      waiting: "linkWaiting",
      denied: "linkDenied",
      closed: "linkClosed",
    };
    const left = Math.max(0, Math.ceil((this.#retryAt - performance.now()) / 1000));
    byId("link").dataset.state = starting ? "starting" : this.#state;
    byId("link-text").textContent = t(keys[this.#state], { n: left });
    if (this.#state === "waiting" && left > 0) this.#timer = setTimeout(() => this.show(), COUNTDOWN_MS);
  }

  #change({ state, code, reason, retryMs, hadToken, greeted }) {
    this.#state = state;
    this.#retryAt = performance.now() + (retryMs ?? 0);
    if (state === "ready") {
      this.#form.hidden = true;
      if (this.#told) this.#say(null);
    } else if (state === "denied" || state === "asking") {
      this.#ask(state === "denied" && hadToken, reason);
    } else if (state === "waiting") {
      this.#say(() => lossText({ code, reason, greeted, n: Math.ceil(retryMs / 1000) }));
    }
    this.show();
  }

  #ask(refused, reason) {
    const first = this.#form.hidden;
    this.#form.hidden = false;
    if (first) this.#token.focus();
    if (refused) {
      sessionStorage.removeItem(TOKEN_KEY);
      this.#say(() => t("tokenWrong"));
    } else if (reason && !/auth|token/i.test(reason)) {
      this.#say(() => t("deniedReason", { reason }));
    }
  }

  #authenticate() {
    sessionStorage.setItem(TOKEN_KEY, this.#token.value);
    this.#session.authenticate(this.#token.value);
    this.#token.value = "";
    this.#say(null);
  }

  #say(words) {
    this.#told = words !== null;
    this.#tell(words);
  }
}
