// What comes from the daemon: answers of the API, and word of each new snapshot.

const kept = new Map(); // the latest answers, by route: { tag, body }
const keptAtMost = 8;
let ahead = 0; // ms: the daemon's clock, before this browser's

// daemonNow is the time by the daemon's clock, ms, as of its latest answer: a browser's own may
// be wrong, and either may be set.
export const daemonNow = () => Date.now() + ahead;

// What the first view shows is asked for before the other scripts are there: of many containers
// the answer takes a while.
const early = new Map(/^#?\/?$/.test(location.hash) ? ["/v1/status", "/v1/list"].map((path) => [path, ask(path)]) : []);

setTimeout(() => early.clear(), 5000); // an answer that nobody took by then is old

function ask(path) {
  const answer = fetch(path, { headers: { accept: "application/json" } });
  answer.catch(() => {}); // told to who waits for it
  return answer;
}

// get asks one route. The browser keeps answers and asks whether they still hold; one that
// does is the same object as before, and is not read anew.
export async function get(path) {
  let answer;
  try {
    const begun = early.get(path);
    early.delete(path);
    answer = await (begun ?? ask(path));
  } catch {
    throw new Error("The daemon does not answer. What stands here is what it said last.");
  }
  const at = Date.parse(answer.headers.get("date"));
  if (Math.abs(at + 500 - daemonNow()) > 1500) ahead = at + 500 - Date.now(); // it has whole seconds
  const tag = answer.ok && answer.headers.get("etag"), before = kept.get(path);
  if (tag && before?.tag === tag) {
    answer.body?.cancel();
    return before.body;
  }
  const text = await answer.text();
  let body;
  try {
    body = JSON.parse(text);
  } catch {
    throw new Error(text.trim() || answer.statusText);
  }
  if (!answer.ok) throw Object.assign(new Error(body.hint ? `${body.error}: ${body.hint}` : body.error), { status: answer.status });
  kept.delete(path);
  if (kept.size >= keptAtMost) kept.delete(kept.keys().next().value);
  kept.set(path, { tag, body });
  return body;
}

// lately is what was last answered to a route, if it is kept: it may be old.
export const lately = (path) => kept.get(path)?.body;

// Live calls onStatus with each new status while the page is seen and not paused.
export class Live {
  #source;
  #retry;
  #paused = false;
  constructor(onStatus, onState) {
    this.onStatus = onStatus;
    this.onState = onState;
    document.addEventListener("visibilitychange", () => this.#follow());
    this.#follow();
  }

  pause(paused) {
    this.#paused = paused;
    this.#follow();
  }

  #follow() {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = undefined;
    if (this.#paused) return this.onState("paused");
    if (document.hidden) return;
    const source = new EventSource("/events");
    this.#source = source;
    source.addEventListener("status", (event) => {
      this.onState("live");
      this.onStatus(JSON.parse(event.data));
    });
    source.onerror = () => {
      this.onState("reconnecting");
      if (source.readyState === EventSource.CLOSED) this.#retry = setTimeout(() => this.#follow(), 5000); // refused: all streams are taken
    };
  }
}

// throttle returns what work last gave, and asks it again at most so often, in ms. A changed
// question is asked at once.
export function throttle(ms, work) {
  let at = -Infinity, last, about;
  return async (question) => {
    if (question !== about || performance.now() - at > ms) {
      last = await work(question);
      about = question;
      at = performance.now();
    }
    return last;
  };
}

// coalesce runs work when asked to, one at a time, and leaves it most of the time idle: what
// takes long to fetch and show is done less often.
export function coalesce(work) {
  let busy = false, again = false;
  const run = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    const began = performance.now();
    try {
      await work();
    } finally {
      setTimeout(() => {
        busy = false;
        if (again) {
          again = false;
          run();
        }
      }, Math.min(9 * (performance.now() - began), 2000));
    }
  };
  return run;
}
