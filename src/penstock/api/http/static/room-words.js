// Every sentence of the visitor's page. A language is one entry here.
export const WORDS = {
  en: {
    ahead: "Ahead of you", all: "In line", estimate: "Estimated wait", about: "About {time}", live: "Live", connecting: "Joining the line …", copy: "Copy", copied: "Copied",
    waiting: "You are in line", turn: "It's your turn", inside: "You are in", left: "You left the line",
    expired: "Your place has expired", revoked: "Your place was taken back",
    paused: "Nobody is let in at the moment. You keep your place.",
    scheduled: "Not open yet. You keep your place.", closed: "This waiting room is closed.",
    place: "Your place", drawn: "Places are drawn by lot when it opens.",
    eta: "About {low} to {high}", soon: "Less than a minute", unknown: "No estimate yet",
    until: "Come in by {time}.", enter: "Enter now", token: "Your entry token", again: "Line up again",
    leave: "Leave the line", hint: "Keep this page open. Reloading keeps your place.",
    offline: "No connection. Trying again; your place is kept.", missing: "There is no such waiting room.",
    refused: "You cannot line up here.",
  },
  ko: {
    ahead: "내 앞", all: "대기 인원", estimate: "예상 대기 시간", about: "약 {time}", live: "실시간", connecting: "대기열에 들어가는 중 …", copy: "복사", copied: "복사했습니다",
    waiting: "대기 중입니다", turn: "입장할 차례입니다", inside: "입장했습니다", left: "대기열에서 나왔습니다",
    expired: "대기 순서가 만료되었습니다", revoked: "대기 순서가 취소되었습니다",
    paused: "지금은 입장이 잠시 중단되었습니다. 순서는 유지됩니다.",
    scheduled: "아직 열리지 않았습니다. 순서는 유지됩니다.", closed: "대기실이 닫혔습니다.",
    place: "내 순서", drawn: "시작할 때 추첨으로 순서를 정합니다.",
    eta: "약 {low} ~ {high}", soon: "1분 미만", unknown: "예상 시간을 아직 알 수 없습니다",
    until: "{time}까지 입장해 주세요.", enter: "지금 입장", token: "입장 토큰", again: "다시 줄 서기",
    leave: "대기 취소", hint: "이 페이지를 열어 두세요. 새로 고쳐도 순서는 유지됩니다.",
    offline: "연결이 끊겼습니다. 다시 시도 중이며 순서는 유지됩니다.", missing: "그런 대기실이 없습니다.",
    refused: "여기서는 줄을 설 수 없습니다.",
  },
  zh: {
    ahead: "前方人数", all: "排队总人数", estimate: "预计等待", about: "大约 {time}", live: "实时", connecting: "正在加入队列…", copy: "复制", copied: "已复制",
    waiting: "您正在排队", turn: "轮到您了", inside: "您已进入", left: "您已离开队列",
    expired: "您的排队已过期", revoked: "您的排队已被取消",
    paused: "目前暂停放行，您的位置会保留。", scheduled: "尚未开放，您的位置会保留。", closed: "等候室已关闭。",
    place: "您的位置", drawn: "开放时抽签决定顺序。",
    eta: "大约 {low} 到 {high}", soon: "不到一分钟", unknown: "暂无预计时间",
    until: "请在 {time} 前进入。", enter: "立即进入", token: "您的入场令牌", again: "重新排队",
    leave: "离开队列", hint: "请保持此页面打开。刷新页面不会丢失位置。",
    offline: "连接中断，正在重试；您的位置会保留。", missing: "没有这个等候室。", refused: "您不能在这里排队。",
  },
  de: {
    ahead: "Vor Ihnen", all: "In der Schlange", estimate: "Geschätzte Wartezeit", about: "Etwa {time}", live: "Live", connecting: "Sie werden eingereiht …", copy: "Kopieren", copied: "Kopiert",
    waiting: "Sie stehen an", turn: "Sie sind an der Reihe", inside: "Sie sind drin", left: "Sie haben die Schlange verlassen",
    expired: "Ihr Platz ist verfallen", revoked: "Ihr Platz wurde zurückgenommen",
    paused: "Im Moment wird niemand eingelassen. Ihr Platz bleibt erhalten.",
    scheduled: "Noch nicht geöffnet. Ihr Platz bleibt erhalten.", closed: "Dieser Warteraum ist geschlossen.",
    place: "Ihr Platz", drawn: "Die Plätze werden beim Öffnen verlost.",
    eta: "Etwa {low} bis {high}", soon: "Weniger als eine Minute", unknown: "Noch keine Schätzung",
    until: "Bitte treten Sie bis {time} ein.", enter: "Jetzt eintreten", token: "Ihr Einlass-Token", again: "Wieder anstellen",
    leave: "Schlange verlassen", hint: "Lassen Sie diese Seite offen. Neu laden behält Ihren Platz.",
    offline: "Keine Verbindung. Neuer Versuch läuft; Ihr Platz bleibt erhalten.", missing: "Diesen Warteraum gibt es nicht.",
    refused: "Hier können Sie sich nicht anstellen.",
  },
};

/** The first language the browser wants and we have. */
export function choose(wanted) {
  for (const tag of wanted) {
    const language = tag.toLowerCase().split("-")[0];
    if (Object.hasOwn(WORDS, language)) return language;
  }
  return "en";
}
