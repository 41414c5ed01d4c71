// What pages do besides being read: times in the viewer's zone, live parts, keys, questions before what can't be undone. All pages work without.
'use strict';
(() => {
  const root = document.documentElement;
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Times
  const thisYear = new Date().getFullYear();
  const day = { month: 'short', day: 'numeric' };
  const clock = { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' };
  // Theirs by choice, or the browser's.
  let timeZone = root.dataset.timeZone || undefined;
  try { new Intl.DateTimeFormat('en', { timeZone }); } catch { timeZone = undefined; }
  const near = new Intl.DateTimeFormat(root.lang, { ...day, ...clock, timeZone });
  const far = new Intl.DateTimeFormat(root.lang, { year: 'numeric', ...day, ...clock, timeZone });
  const long = new Intl.DateTimeFormat(root.lang, { dateStyle: 'full', timeStyle: 'long', timeZone });
  const relative = new Intl.RelativeTimeFormat(root.lang, { numeric: 'auto', style: 'short' });
  const units = [['day', 86400], ['hour', 3600], ['minute', 60], ['second', 1]];
  const away = (at) => {
    const seconds = Math.round((at - Date.now()) / 1000);
    const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) ?? units[3];
    return relative.format(Math.trunc(seconds / size), unit);
  };
  const showTimes = (within) => {
    for (const element of all('time[datetime]', within)) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      element.textContent = (at.getFullYear() === thisYear ? near : far).format(at);
      element.title = `${long.format(at)} · ${element.dateTime}`;
      const holder = element.closest('[data-rel]');
      if (holder) {
        let note = one('.away', holder);
        if (!note) {
          note = document.createElement('small');
          note.className = 'away';
          element.after(note);
        }
        note.textContent = away(at);
      }
    }
  };
  const zone = timeZone ?? Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const element of all('[data-zone]')) element.textContent = zone;

  // Makes a tree like another one and leaves what is the same as it is, so that neither focus nor clicks are lost.
  const morph = (from, to) => {
    if (from.isEqualNode(to)) return;
    // The script's own: the server knows less of it.
    if (from.dataset?.own !== undefined && from.id === to.id) return;
    if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName || from.id !== to.id) {
      from.replaceWith(to);
      return;
    }
    if (from.nodeType !== Node.ELEMENT_NODE) {
      from.nodeValue = to.nodeValue;
      return;
    }
    for (const { name } of [...from.attributes]) {
      const isOwn = name === 'open' || name === 'data-stream' || (name === 'class' && from.classList.contains('here'));
      if (!to.hasAttribute(name) && !isOwn) from.removeAttribute(name);
    }
    for (const { name, value } of [...to.attributes]) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    const [old, fresh] = [[...from.childNodes], [...to.childNodes]];
    fresh.forEach((node, index) => (index < old.length ? morph(old[index], node) : from.append(node)));
    old.slice(fresh.length).forEach((node) => node.remove());
  };

  // Output stays at its end unless somebody has scrolled up.
  const isAtEnd = (element) => element.scrollHeight - element.scrollTop - element.clientHeight < 24;
  const toEnd = (element) => { element.scrollTop = element.scrollHeight; };

  // The log, as it is written
  const log = document.getElementById('log');
  const clockOf = new Intl.DateTimeFormat(root.lang, { ...clock, fractionalSecondDigits: 3 });
  const showClocks = (within) => {
    for (const element of all('[data-at]', within)) {
      const at = new Date(element.dataset.at);
      if (Number.isNaN(at.getTime())) continue;
      element.textContent = clockOf.format(at);
      element.title = `${long.format(at)} · ${element.dataset.at}`;
    }
  };
  // Without colours, and with a sign for each other control character.
  const plain = (text) => text
    .replace(/\x1b\[[ -?]*[@-~]?/g, '')
    .replace(/[\x00-\x08\x0a-\x1f]/g, (character) => String.fromCharCode(0x2400 + character.charCodeAt(0)))
    .replace(/\x7f/g, '\u2421')
    .replace(/[\x80-\x9f]/g, '\ufffd');
  const span = (className, text) => {
    const element = document.createElement('span');
    element.className = className;
    element.textContent = text;
    return element;
  };
  const follow = () => {
    const pre = one('pre', log);
    const most = Number(log.dataset.most) * 4;
    let attempt = Number(log.dataset.attempt);
    let waiting = [];
    let address = log.dataset.stream;
    const put = () => {
      const wasAtEnd = pre.hidden || isAtEnd(pre);
      const fresh = document.createDocumentFragment();
      for (const line of waiting) {
        if (attempt && line.attempt !== attempt) fresh.append(span('attempt', `${log.dataset.label} ${line.attempt}`));
        attempt = line.attempt;
        const row = span(`line ${line.level}${line.dropped > 0 ? ' notice' : ''}`, '');
        const at = span('at', '');
        at.dataset.at = line.at;
        row.append(at, span('level', line.level), span('said', plain(line.message)));
        fresh.append(row);
      }
      waiting = [];
      showClocks(fresh);
      pre.append(fresh);
      pre.hidden = false;
      one('.none', log)?.remove();
      while (pre.childElementCount > most) pre.firstElementChild.remove();
      if (wasAtEnd) toEnd(pre);
    };
    const listen = () => {
      const source = new EventSource(address);
      source.addEventListener('line', (event) => {
        const line = JSON.parse(event.data);
        const next = new URL(address, location.href);
        next.searchParams.set('after', line.cursor);
        address = next.href;
        if (waiting.push(line) === 1) setTimeout(put, 30);
      });
      source.addEventListener('end', () => source.close());
      // It asks again by itself unless it was refused: then a little later, behind the last line.
      source.addEventListener('error', () => {
        if (source.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
      });
    };
    listen();
  };

  // Live parts
  const region = document.getElementById('live');
  const note = document.getElementById('live-note');
  let [timer, due, last, isAsking] = [0, Infinity, 0, false];
  // Once a second at most, however much happens.
  const APART = 1000;
  const isBusy = () => {
    const selection = getSelection();
    const isSelecting = selection && !selection.isCollapsed && region.contains(selection.anchorNode);
    return document.hidden || isSelecting || one('dialog[open]') !== null || (region.contains(document.activeElement) && document.activeElement.matches('input, textarea, select'));
  };
  const refresh = async () => {
    due = Infinity;
    if (isAsking) return at(Date.now() + APART);
    if (!isBusy()) {
      [last, isAsking] = [Date.now(), true];
      try {
        const answer = await fetch(location.href, { headers: { accept: 'text/html' } });
        const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html').getElementById('live');
        if (fresh && answer.ok) {
          const wasAtEnd = all('[data-tail]', region).map(isAtEnd);
          const before = region.dataset.state;
          showTimes(fresh);
          morph(region, document.adoptNode(fresh));
          showTimes(region);
          all('[data-tail]', region).forEach((element, index) => { if (wasAtEnd[index] ?? true) toEnd(element); });
          if (region.dataset.state !== before) note.textContent = one('.sub', region)?.textContent.trim() ?? '';
        }
      } catch { /* The server is away: it is asked again. */ }
      isAsking = false;
    }
    plan();
  };
  // The earliest time that is asked for counts.
  const at = (when) => {
    if (when >= due) return;
    due = when;
    clearTimeout(timer);
    timer = setTimeout(refresh, Math.max(when - Date.now(), 0));
  };
  const soon = () => at(Math.max(Date.now(), last + APART));
  const plan = () => {
    const seconds = Number((isHeard && region?.dataset.calm) || region?.dataset.live);
    if (seconds > 0) at(Date.now() + seconds * 1000);
    else listen();
  };

  // What has changed is told by the API's stream. It ends after a minute, and the browser takes it up again; where there is none, or where it
  // tells of a part only, the page is asked for by the clock as before.
  let [stream, isHeard] = [null, false];
  const listen = () => {
    const asked = region?.dataset.events;
    const isWanted = asked && Number(region.dataset.live) > 0 && !document.hidden;
    if (stream && !isWanted) {
      stream.close();
      [stream, isHeard] = [null, false];
    }
    if (stream || !isWanted) return;
    stream = new EventSource(`/api/v1/events?${asked}`);
    for (const kind of ['change', 'worker', 'lost']) stream.addEventListener(kind, soon);
    stream.addEventListener('scope', (event) => {
      const { partitions, of, looks } = JSON.parse(event.data);
      isHeard = looks || partitions.length === of;
      region.dataset.stream = isHeard ? 'all' : 'part';
    });
    stream.addEventListener('error', () => {
      isHeard = false;
      region.dataset.stream = 'none';
      // Refused: there are too many listeners, or the session is over. The next page tries again.
      plan();
    });
  };
  document.addEventListener('visibilitychange', () => {
    listen();
    if (!document.hidden && Number(region?.dataset.live) > 0) soon();
  });

  // Questions
  const ask = (form, submitter, question) => {
    const dialog = document.getElementById('confirm-template').content.firstElementChild.cloneNode(true);
    const [yes, reason] = [one('[data-yes]', dialog), one('input', dialog)];
    one('h2', dialog).textContent = question;
    yes.textContent = submitter.dataset.yes ?? submitter.textContent;
    reason.required = submitter.hasAttribute('data-needs-reason');
    one('form', dialog).addEventListener('submit', (event) => {
      if (event.submitter !== yes && reason.required) dialog.close('no');
    });
    one('[value="no"]', dialog).formNoValidate = true;
    // The field is the first to submit by Enter; that means yes.
    reason.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') { event.preventDefault(); yes.click(); }
    });
    dialog.addEventListener('close', () => {
      if (dialog.returnValue === 'yes') {
        for (const [name, value] of [['confirmed', 'yes'], ['reason', reason.value]]) {
          const field = document.createElement('input');
          Object.assign(field, { type: 'hidden', name, value });
          form.append(field);
        }
        form.dataset.sure = 'yes';
        form.requestSubmit(submitter);
      }
      dialog.remove();
      submitter.focus();
    });
    document.body.append(dialog);
    dialog.showModal();
    reason.focus();
  };
  document.addEventListener('submit', (event) => {
    const { target: form, submitter } = event;
    const question = submitter?.dataset.confirm ?? form.dataset.confirm;
    if (!question || !submitter || form.dataset.sure) return;
    event.preventDefault();
    ask(form, submitter, question);
  });

  // Boxes of a list
  for (const box of all('[data-tick-all]')) {
    box.hidden = false;
    box.addEventListener('change', () => all('input[name="id"]', box.form).forEach((other) => { other.checked = box.checked; }));
  }

  // The editor looks at what is typed
  const editor = one('form[data-check]');
  if (editor) {
    const text = one('textarea', editor);
    let [waiting, latest] = [0, 0];
    const check = async () => {
      const turn = ++latest;
      try {
        const answer = await fetch(editor.dataset.check, { method: 'POST', body: new URLSearchParams(new FormData(editor)), headers: { accept: 'text/html' } });
        const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
        const fresh = page.getElementById('checked');
        if (fresh && answer.ok && turn === latest) {
          showTimes(fresh);
          morph(document.getElementById('checked'), document.adoptNode(fresh));
          text.toggleAttribute('aria-invalid', page.getElementById('document').hasAttribute('aria-invalid'));
          if (text.hasAttribute('aria-invalid')) text.setAttribute('aria-invalid', 'true');
        }
      } catch { /* It is checked again when it is saved. */ }
    };
    text.addEventListener('input', () => { clearTimeout(waiting); waiting = setTimeout(check, 350); });
    editor.addEventListener('click', (event) => {
      const place = event.target.closest('.place');
      if (!place) return;
      const lines = text.value.split('\n');
      const line = Math.min(Math.max(Number(place.dataset.line) - 1, 0), lines.length - 1);
      const begin = lines.slice(0, line).reduce((sum, each) => sum + each.length + 1, 0);
      text.focus();
      text.setSelectionRange(begin, begin + lines[line].length);
    });
  }

  // Keys
  const keys = document.getElementById('keys');
  for (const button of all('[data-help]')) {
    button.hidden = false;
    button.addEventListener('click', () => keys.showModal());
  }
  const step = (by) => {
    const rows = all('[data-row]');
    if (rows.length === 0) return;
    const at = rows.findIndex((row) => row.classList.contains('here'));
    rows[at]?.classList.remove('here');
    const next = rows[Math.min(Math.max(at + by, 0), rows.length - 1)];
    next.classList.add('here');
    next.scrollIntoView({ block: 'nearest' });
    one('a[href]', next)?.focus();
  };
  let goes = 0;
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || one('dialog[open]')) return;
    if (event.key === 'Escape') all('details.drop[open]').forEach((drop) => { drop.open = false; one('summary', drop).focus(); });
    if (event.target.matches('input, textarea, select') || event.target.isContentEditable) return;
    const wasGoing = Date.now() - goes < 1500;
    goes = 0;
    if (wasGoing) {
      const link = one(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    const actions = {
      '/': () => one('#search').focus(),
      '?': () => keys.showModal(),
      'g': () => { goes = Date.now(); },
      'j': () => step(1),
      'k': () => step(-1),
      'n': () => { location.href = '/tasks/new'; },
    };
    if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
  });
  document.addEventListener('click', (event) => {
    for (const drop of all('details.drop[open]')) if (!drop.contains(event.target)) drop.open = false;
  });

  showTimes(document);
  showClocks(document);
  setInterval(() => all('[data-rel]').forEach(showTimes), 1000);
  all('[data-tail]').forEach(toEnd);
  listen();
  plan();
  if (log?.dataset.stream) follow();
})();
