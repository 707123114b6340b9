// The visitor's line to the server: join once, then hear of the place by stream or, failing that, by asking.
const SILENT_MS = 8000; // the server says something every two seconds: a longer silence is a proxy that holds it back
const TURN_POLL_MS = 2000;
export const ENDED = new Set(["LEFT", "EXPIRED", "REVOKED"]);

/** What the server refused, with its status and how long it asks to be left alone. */
export class Refused extends Error {
  constructor(status, code, message, waitMs) {
    super(message);
    this.status = status;
    this.code = code;
    this.waitMs = waitMs;
  }
}

export class Line {
  #api;
  #kept;
  #streams = true;
  #ended = new AbortController();
  #wake = () => {};
  #hurried = false;

  /** `base` is where the server is on this site; `user` is a name the site has given the visitor, or null. */
  constructor(base, room, user) {
    this.#api = `${base}/v1/rooms/${encodeURIComponent(room)}`;
    this.#kept = `penstock-room:${base}/${room}`;
    this.named = user;
    this.me = this.#remembered() ?? { user: user ?? freshName(), ticket: null, first: null };
    this.live = false;
  }

  async join() {
    try {
      const ticket = await this.#call("POST", "/join", { user: this.me.user });
      this.me.ticket = ticket.ticket ?? this.me.ticket;
      this.#remember();
      return ticket;
    } catch (error) {
      if (error.code !== "ticket_taken" || this.named !== null) throw error;
      this.me = { user: freshName(), ticket: null, first: null }; // another visitor has that name
      return this.join();
    }
  }

  /** Forget the ticket: the next join is a new visit. */
  forget() {
    this.me = { user: this.me.user, ticket: null, first: null };
    this.#remember();
  }

  async leave() {
    await this.#call("DELETE", this.#ticketPath());
    this.hurry();
  }

  /** Ask at once, whatever the wait was. */
  hurry() {
    this.#hurried = true;
    this.#wake();
  }

  get stopped() {
    return this.#ended.signal.aborted;
  }

  stop() {
    this.#ended.abort();
    this.#wake();
  }

  /** How far along, in percent: from where the visitor was first seen to the front. */
  progress(ticket) {
    this.me.first = Math.max(this.me.first ?? 0, ticket.position);
    this.#remember();
    return Math.round((100 * (this.me.first - ticket.ahead)) / (this.me.first + 1));
  }

  /** Tickets as they change, until the visit has ended. Throws Refused, or TypeError without a connection. */
  async *news(ticket) {
    while (!ENDED.has(ticket.state) && !this.stopped) {
      if (ticket.state === "WAITING" && this.#streams) {
        for await (const heard of this.#stream()) yield (ticket = heard);
        this.live = false;
        if (ticket.state !== "WAITING") continue;
      }
      await this.#sleep(ticket.state === "WAITING" ? ticket.poll_after_ms : Math.max(ticket.poll_after_ms, TURN_POLL_MS));
      if (this.stopped) return;
      yield (ticket = await this.#call("GET", this.#ticketPath()));
    }
  }

  /** Tickets from server-sent events, by fetch since EventSource cannot show the ticket's secret. */
  async *#stream() {
    const cut = new AbortController();
    this.#wake = () => cut.abort();
    this.live = false;
    const giveUp = () => {
      this.#streams = false; // ask from now on
      cut.abort();
    };
    let watchdog = setTimeout(giveUp, SILENT_MS);
    try {
      const answer = await fetch(this.#api + this.#ticketPath() + "/events", { headers: this.#headers(), signal: cut.signal });
      if (answer.status === 401 || answer.status === 404) throw new Refused(answer.status, "", 0); // the ticket is void
      if (!answer.ok) {
        this.#streams = answer.status !== 429 && answer.status < 500;
        return;
      }
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(watchdog);
        watchdog = setTimeout(giveUp, SILENT_MS);
        const blocks = (text + value).split("\n\n");
        text = blocks.pop();
        for (const block of blocks) {
          this.live = true;
          if (block.startsWith("event: gone")) throw new Refused(404, "", 0); // known: no need to ask
          const data = block.split("\n").find((line) => line.startsWith("data: "));
          if (data) yield JSON.parse(data.slice(6));
        }
      }
    } catch (error) {
      if (error instanceof Refused) throw error;
      // The connection broke or was cut: the next request for the ticket says why.
    } finally {
      clearTimeout(watchdog);
      cut.abort();
    }
  }

  async #call(method, path, body) {
    const headers = this.#headers();
    if (body) headers["content-type"] = "application/json";
    const answer = await fetch(this.#api + path, { method, headers, body: body && JSON.stringify(body), signal: this.#ended.signal });
    if (answer.ok) return answer.json();
    const said = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, said.error?.code, said.error?.message ?? "", 1000 * Number(answer.headers.get("retry-after") ?? 0));
  }

  #headers() {
    return this.me.ticket ? { "x-ticket": this.me.ticket } : {};
  }

  #ticketPath() {
    return `/tickets/${encodeURIComponent(this.me.user)}`;
  }

  async #sleep(millis) {
    if (!this.#hurried) await this.#doze(millis);
    this.#hurried = false;
  }

  #doze(millis) {
    // A little apart, so that a crowd does not ask all at once.
    return new Promise((done) => {
      const timer = setTimeout(done, millis * (0.9 + Math.random() * 0.2));
      this.#wake = () => { clearTimeout(timer); done(); };
    });
  }

  #remembered() {
    try {
      const found = JSON.parse(localStorage.getItem(this.#kept) ?? "null");
      return found?.user && (this.named === null || this.named === found.user) ? found : null;
    } catch {
      return null; // storage is off: the place lasts as long as the page
    }
  }

  #remember() {
    try {
      localStorage.setItem(this.#kept, JSON.stringify(this.me));
    } catch {
      // see #remembered()
    }
  }
}

function freshName() {
  // randomUUID is only there on secure origins; a name is no secret, the ticket is.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return "v-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
