//! Every text of the pages, in each language. One that lacks a language does not compile; what is missing here can't be said by a template, and
//! a test keeps templates from saying anything else.
//!
//! `{}` and `{name}` are filled in by whoever shows the text.

use std::fmt::Display;

use crate::identity::Role;

macro_rules! words {
    ($($name:ident: $en:literal, $zh:literal;)*) => {
        /// The texts of a language.
        #[derive(Debug)]
        pub(crate) struct Words {
            /// The language itself, as HTML calls it.
            pub(crate) html_lang: &'static str,
            $(pub(crate) $name: &'static str,)*
        }

        pub(super) static EN: Words = Words { html_lang: "en", $($name: $en,)* };
        pub(super) static ZH: Words = Words { html_lang: "zh-CN", $($name: $zh,)* };

        /// Name, English, Chinese.
        #[cfg(test)]
        const ALL: &[(&str, &str, &str)] = &[$((stringify!($name), $en, $zh),)*];
    };
}

impl Words {
    /// The name of a role.
    pub(super) fn role(&self, role: Role) -> &'static str {
        match role {
            Role::Viewer => self.role_viewer,
            Role::Operator => self.role_operator,
            Role::Editor => self.role_editor,
            Role::Admin => self.role_admin,
        }
    }

    /// A text with its one place filled in.
    pub(crate) fn fill(&self, text: &str, with: impl Display) -> String {
        text.replace("{}", &with.to_string())
    }

    /// A text about a node and its state.
    pub(super) fn fill_mark(&self, text: &str, node: &str, state: &str) -> String {
        text.replace("{node}", node).replace("{state}", state)
    }
}

words! {
    about: "About", "关于";
    actions: "Actions", "操作";
    add_user: "Add a user", "添加用户";
    address: "Address", "地址";
    after: "After", "上游";
    after_any: "after each end of {}", "{} 结束后（不论结果）";
    after_failure: "after {} has failed", "{} 失败后";
    after_success: "after {} has succeeded", "{} 成功后";
    alive: "alive", "在线";
    all: "all", "全部";
    all_of_task: "all of {}", "{} 的全部";
    all_parts: "All parts", "全部";
    all_tasks: "All tasks", "全部任务";
    all_well: "All is well", "一切正常";
    an_hour_ago: "an hour ago", "一小时前";
    appearance: "Appearance", "外观";
    ask_cancel: "Cancel instance {}? Its attempt has time to clean up.", "取消实例 {}？运行中的尝试会有时间清理。";
    ask_cancel_backfill: "End backfill {}? What it has started goes on to its end.", "终止回填 {}？已开始的实例会继续运行到结束。";
    ask_disable: "Keep {} from signing in? Their sessions end; tokens are good for nothing until they may again.", "停用 {}？其会话将结束，令牌在重新启用前无效。";
    ask_discard: "Discard {} dead letters? They stay on record, and are not run again.", "丢弃死信（{}）？记录会保留，但不再重跑。";
    ask_discard_selected: "Discard the dead letters that are ticked? Say why, for the record.", "丢弃所选死信？请写明原因以备查。";
    ask_kill: "Kill instance {} at once? Its attempt has no time to clean up.", "立即强制终止实例 {}？运行中的尝试没有时间清理。";
    ask_mark: "Say that node {node} is {state}?", "将节点 {node} 标记为“{state}”？";
    ask_drain: "Drain {}? It is given nothing more until it is undrained; what it runs goes on.", "排空 {}？取消排空前不再分配新的执行，运行中的会继续。";
    ask_pause: "Pause {}? Nothing of it starts until it is resumed; what runs goes on.", "暂停 {}？恢复前不会启动新的实例，运行中的会继续。";
    ask_remove: "Remove task {}? What runs is ended, and its history stays.", "删除任务 {}？运行中的实例会被终止，历史记录保留。";
    ask_remove_user: "Remove user {}? Their sessions and tokens end; what they have done stays on record.", "删除用户 {}？其会话与令牌失效，操作记录保留。";
    ask_replay: "Run dead letters again ({})?", "重跑死信（{}）？";
    ask_replay_selected: "Run the dead letters that are ticked again?", "重跑所选死信？";
    ask_rerun: "Run instance {} again?", "重跑实例 {}？";
    ask_rerun_from: "Run again from node {} on?", "从节点 {} 起重跑？";
    ask_revoke: "Revoke token {}? What uses it is refused from then on.", "吊销令牌 {}？使用它的程序将被拒绝。";
    ask_sign_out: "Sign {} out everywhere? Tokens stay good.", "让 {} 在所有地方退出登录？令牌仍然有效。";
    ask_sign_out_others: "Sign out everywhere but here?", "除此处外全部退出登录？";
    ask_skip: "Leave out instance {}?", "跳过实例 {}？";
    asked_by: "Asked for by", "请求者";
    at: "When", "时间";
    at_a_glance: "At a glance", "概要";
    attempt: "Attempt", "尝试";
    attempts: "Attempts", "各次尝试";
    audit: "Audit", "审计";
    audit_words: "What people have done, newest first. Nothing of it is ever changed.", "人的操作记录，最新在前，不可更改。";
    back: "Back", "返回";
    backfill: "Backfill", "回填";
    backfill_again: "Also fire times that have an instance", "已有实例的触发时间也重新执行";
    backfill_now: "Make up for them", "开始回填";
    backfill_passed_over: "{} fire times have an instance and are passed over.", "{} 个触发时间已有实例，将跳过。";
    backfill_words: "Makes up for fire times of the past that have no instance.", "为过去没有实例的触发时间补建实例。";
    backfill_would: "{} fire times to be made up for", "将补建 {} 个触发时间";
    backfills: "Backfills", "回填";
    backfills_words: "Fire times of the past that somebody wants made up for.", "有人要求补建的过去的触发时间。";
    begin: "Begin", "开始使用";
    breadcrumbs: "Where this is", "当前位置";
    breaker_detail: "{state}, {failures} failures in a row, {held} instances wait", "{state}，连续失败 {failures} 次，{held} 个实例等待";
    breakers: "Circuit breakers", "熔断器";
    by: "By", "操作者";
    calendar: "Calendar", "日程";
    calendar_fires: "Fire times: {}", "触发时间：{}";
    calendar_loops: "{} tasks fire when their last instance has ended: of each, only the next fire time is known.", "{} 个任务在上一个实例结束后才触发，仅显示下一次。";
    calendar_partial: "There are more tasks or fire times than are worked out here: what is shown is a part.", "任务或触发时间过多，此处仅显示一部分。";
    calendar_tasks: "Tasks: {}", "任务：{}";
    cancel: "Cancel", "取消";
    cancel_yes: "Yes, cancel", "确认取消";
    changes: "Changes", "变更";
    chart_bar: "{ago} min ago: {good} ended well, {bad} failed", "{ago} 分钟前：{good} 个正常结束，{bad} 个失败";
    chart_peak: "most in one:", "峰值：";
    check: "Check", "检查";
    close: "Close", "关闭";
    cluster_time: "The cluster's clock", "集群时间";
    commits: "Commits", "提交数";
    compare: "Compare", "比较";
    concern_breaker: "The circuit breaker of {} is not closed", "{} 的熔断器未闭合";
    concern_failed: "Firings that failed in the last hour: {n}, the latest of {task}", "最近一小时失败的触发：{n} 次，最近一次为 {task}";
    concern_letter: "A dead letter waits for somebody to run it again or to discard it", "1 封死信等待重跑或丢弃";
    concern_letters: "{} dead letters wait for somebody to run them again or discard them", "{} 封死信等待重跑或丢弃";
    concern_nobody: "Waiting for a worker that there is not: {needs} ({n})", "没有可用的执行节点：{needs}（{n} 个实例）";
    concern_paused_all: "Everything is paused", "全部任务已暂停";
    concern_paused_group: "The group {} is paused", "分组 {} 已暂停";
    concern_paused_task: "The task {} is paused", "任务 {} 已暂停";
    concern_drained: "The worker {} is drained", "执行节点 {} 已排空";
    concern_replica: "Replica {} has been silent", "调度节点 {} 没有响应";
    concern_scheduler: "This replica's scheduler does not answer", "本节点的调度器没有响应";
    concern_store: "The database can't be written: nothing fires for now", "数据库无法写入，暂不触发";
    concern_unowned: "{} partitions have no owner: their tasks don't fire", "{} 个分区没有归属节点，其任务不会触发";
    concurrency: "At a time", "并发数";
    confirm: "Are you sure?", "请确认";
    connected: "connected", "已连接";
    count: "Count", "数量";
    created: "Created", "创建时间";
    day: "Day (UTC)", "日期（UTC）";
    dead_letters: "Dead letters", "死信";
    dead_letters_words: "Given up for good: each waits for somebody to run it again or to discard it.", "已彻底放弃的实例，等待有人重跑或丢弃。";
    definition: "Definition", "定义";
    delay_seconds: "Delay, in seconds", "延迟（秒）";
    detail: "Detail", "详情";
    disable: "Disable", "停用";
    disabled: "disabled", "已停用";
    discard: "Discard", "丢弃";
    discard_selected: "Discard selected", "丢弃所选";
    document: "Document, in YAML or JSON", "文档（YAML 或 JSON）";
    document_words: "Every field is explained in", "各字段的说明见";
    done_backfill: "A backfill of {} has begun.", "{} 的回填已开始。";
    done_backfill_cancelled: "Backfill {} is ended.", "回填 {} 已终止。";
    done_cancelled: "Instance {} is asked to end.", "已请求取消实例 {}。";
    done_created: "Task {} is made.", "任务 {} 已创建。";
    done_discarded: "{} discarded.", "已丢弃 {} 封。";
    done_ended_before: "Instance {} had ended before.", "实例 {} 此前已结束。";
    done_killed: "Instance {} is killed.", "已强制终止实例 {}。";
    done_marked: "Node {node} is said to be {state}.", "节点 {node} 已标记为“{state}”。";
    done_more: "There are more.", "还有更多。";
    done_drained: "Drained: {}.", "已排空：{}。";
    done_password: "The password of {} is set; other sessions have ended.", "{} 的密码已设置，其他会话已结束。";
    done_paused: "Paused: {}.", "已暂停：{}。";
    done_refused: "{n} refused, such as {first}", "{n} 个被拒绝，例如 {first}";
    done_removed: "Task {} is removed.", "任务 {} 已删除。";
    done_replayed: "{} run again.", "已重跑 {} 封。";
    done_rerun: "Instance {} runs again: this is its new run.", "实例 {} 已重跑，此为新的一轮。";
    done_undrained: "Not drained any more: {}.", "已取消排空：{}。";
    done_resumed: "Resumed: {}.", "已恢复：{}。";
    done_revoked: "Token {} is revoked.", "令牌 {} 已吊销。";
    done_saved: "Task {} is changed.", "任务 {} 已保存。";
    done_signed_out: "{} is signed out everywhere.", "{} 已在所有地方退出登录。";
    done_signed_out_others: "You are signed out everywhere but here.", "除此处外均已退出登录。";
    done_skipped: "Instance {} is left out.", "已跳过实例 {}。";
    done_token_made: "Token made: {}", "令牌已创建：{}";
    done_triggered: "Triggered: {}.", "已触发：{}。";
    done_unchanged: "Nothing was changed: {} is as it was.", "没有变化：{} 保持原样。";
    drain: "Drain", "排空";
    drained: "drained", "已排空";
    first_run: "The first user", "第一个用户";
    first_run_words: "They may do everything, and add the others.", "拥有全部权限，并可添加其他用户。";
    go_on: "Go on", "继续";
    link_over: "The link for the first user has been used or has expired; the server prints a new one when it starts, while there is no user.", "第一个用户的链接已被使用或已过期；没有用户时，服务器启动时会打印新的链接。";
    no_user_yet: "There is no user yet. The first one is made by the link that the server printed when it started.", "还没有用户。请用服务器启动时打印的链接创建第一个用户。";
    password_long: "Password, at least 12 characters", "密码（至少 12 个字符）";
    sign_in: "Sign in", "登录";
    sign_in_provider: "Sign in with your organisation", "使用组织账号登录";
    signed_in: "Signed in", "已登录";
    too_many_tries: "Too many tries to sign in; the next one is in {} s.", "登录尝试过多，请在 {} 秒后重试。";
    undrain: "Undrain", "取消排空";
    done_user_added: "User {} is added.", "用户 {} 已添加。";
    done_user_changed: "User {} is changed.", "用户 {} 已修改。";
    done_user_removed: "User {} is removed.", "用户 {} 已删除。";
    draining: "draining", "退出中";
    due: "Due", "到期时间";
    edit: "Edit", "编辑";
    enable: "Enable", "启用";
    enabled: "enabled", "启用";
    explain: "Explain", "解释";
    user_name: "Name", "用户名";
    why_at: "Time: an instant, or a time in the task's own zone such as 2026-11-30T02:00", "时间：时刻，或任务所在时区的时间，例如 2026-11-30T02:00";
    ended: "Ended", "结束时间";
    ended_badly: "failed", "失败";
    ended_by_minute: "Ended, minute by minute", "每分钟结束数";
    ended_well: "ended well", "正常";
    epoch: "Epoch", "任期";
    error_forbidden: "This takes the role of {}, for the group of the task. Ask somebody who administers Punctual for it.", "此操作需要该任务分组的“{}”角色，请联系管理员授权。";
    error_forbidden_everywhere: "This is of everything, so it takes the role of {} everywhere, and not for some groups only. Ask somebody who administers Punctual for it.", "此处涉及全部内容，需要全局的“{}”角色，仅限分组的角色不足。请联系管理员授权。";
    error_forged: "The form has not come from a page of this console, or from one that is too old. Load the page again and repeat it.", "表单不是来自本控制台的页面，或页面已过期。请重新加载页面后再试。";
    error_heading: "That can't be done", "无法完成";
    error_heading_down: "Not for now", "暂时不可用";
    error_heading_forbidden: "Not allowed", "没有权限";
    error_heading_gone: "Not there", "找不到";
    error_name_taken: "There is a task {} already. Edit that one, or choose another name.", "任务 {} 已存在。请编辑该任务，或换一个名字。";
    error_no_page: "There is no page at this address. It may have been of something that was deleted.", "此地址没有页面，其内容可能已被删除。";
    error_no_version: "the task has no such version", "任务没有这个版本";
    error_no_zone: "there is no time zone {}; it is a name such as Asia/Shanghai", "没有时区 {}，应为 Asia/Shanghai 这样的名称";
    error_not_one_task: "The document has {} tasks; here it is exactly one. Use `punctual apply` for files.", "文档中有 {} 个任务，此处只能有一个。文件请使用 `punctual apply`。";
    error_nothing_selected: "Nothing is ticked.", "没有选择任何一项。";
    error_number: "{} is not a whole number", "{} 不是整数";
    error_others_task: "The task {name} is of the source {source}, which takes back what is changed here when it is applied again. Change it there, or take the task over.", "任务 {name} 来自 {source}，其再次应用时会覆盖此处的修改。请在来源处修改，或接管该任务。";
    error_passwords_differ: "the two are not the same", "两次输入不一致";
    error_renamed: "a task keeps its name, {}; make a new one under another name", "任务名 {} 不可更改，请用其他名字新建任务";
    error_see_docs: "What it means and what to do:", "含义与处理方法：";
    error_too_large: "The form is too large.", "表单过大。";
    everything: "everything", "全部";
    exit_code: "Code", "返回码";
    expires: "Ends", "失效时间";
    fact_concurrency: "Concurrency", "并发";
    fact_downstream: "Downstream", "下游依赖";
    fact_group: "Group", "分组";
    fact_handler: "Runs", "执行";
    fact_misfire: "Misfire", "错过策略";
    fact_owner: "Owner", "负责人";
    fact_priority: "Priority", "优先级";
    fact_rate: "Rate limit", "速率限制";
    fact_retry: "Retry", "重试";
    fact_routing: "Routing", "路由";
    fact_shards: "Shards", "分片";
    fact_timeout: "Timeout", "超时";
    failures_counted: "failed", "次失败";
    filter: "Filter", "筛选";
    fire_time: "Fire time", "触发时间";
    fire_times: "fire times", "触发时间";
    fires_also_on: "also on {}", "另在 {} 触发";
    fires_blackout: "not in the blackout {}", "禁止时段 {}";
    fires_disabled: "disabled: it fires by hand only", "已停用：只能手动触发";
    fires_from: "from {} on", "自 {} 起";
    fires_in_zone: "by the clock of {}", "时区 {}";
    fires_jitter: "each start is put off by up to {}", "每次启动随机推迟至多 {}";
    fires_next: "Fires next", "即将触发";
    fires_not_on: "not on {}", "{} 不触发";
    fires_over_time: "Fire times ahead", "未来的触发分布";
    fires_until: "until {} (exclusive)", "至 {} 止（不含）";
    first_user_words: "There are no users: whoever is at this machine may do everything. From the first user on everybody signs in, so the first one has to be an admin.", "还没有用户：本机上的任何人都可执行所有操作。添加第一个用户后所有人都需登录，因此第一个用户必须是管理员。";
    for_programs: "For programs", "程序接口";
    for_programs_words: "Whatever is done here can be done by the API and by the command line:", "此处的所有操作都可通过 API 与命令行完成：";
    from: "From where", "来源";
    from_utc: "From (UTC)", "起（UTC）";
    from_version: "From version", "从版本";
    gone: "gone", "已离开";
    good_for_days: "Good for, in days", "有效天数";
    grants_help: "viewer, operator, editor or admin; with @GROUP behind it for one group only; commas between several.", "viewer、operator、editor 或 admin；其后加 @分组 仅限该分组；多个以逗号分隔。";
    graph: "Workflow", "工作流";
    handler_command: "a command", "命令";
    handler_http: "an HTTP call", "HTTP 调用";
    handler_nodes: "{} nodes", "{} 个节点";
    handlers: "Handlers", "处理程序";
    health: "Last 30 days", "近 30 天";
    health_counts: "{good} succeeded, {bad} failed, {left} stopped", "成功 {good}，失败 {bad}，中止 {left}";
    health_days: "Day by day", "逐日";
    health_none: "Nothing has ended in the last 30 days.", "近 30 天没有结束的实例。";
    herds: "Herds", "集中触发";
    herds_words: "many tasks in one minute: spread them, or give them jitter", "同一分钟内触发的任务过多：建议错开或加随机抖动";
    hours_168: "7 days", "7 天";
    hours_24: "24 hours", "24 小时";
    hours_6: "6 hours", "6 小时";
    how_it_runs: "How it runs", "执行方式";
    inbox: "Inbox", "收件箱";
    instance: "Instance", "实例";
    instances: "Instances", "实例";
    instances_in_memory: "Instances in memory", "内存中的实例";
    is_fine: "is fine", "检查通过";
    key: "Key", "幂等键";
    key_help: "this help", "本帮助";
    key_new: "new task", "新建任务";
    key_rows: "next row, row before", "下一行、上一行";
    key_search: "search tasks", "搜索任务";
    keys: "Keys", "快捷键";
    keys_title: "Keys", "快捷键";
    kill: "Kill", "强制终止";
    language: "Language", "语言";
    last_hour: "ended in the last hour", "近一小时结束";
    last_used: "Last used", "最近使用";
    latest_failures: "Latest failures", "最近的失败";
    latest_results: "Latest results", "最近结果";
    lease_until: "Lease until", "租约至";
    level: "Level", "级别";
    live: "Live", "未结束";
    log: "Log", "日志";
    log_cut: "Only the last {} lines are shown here; `punctual logs` has all.", "此处仅显示最后 {} 行；完整日志请使用 `punctual logs`。";
    looked_through: "Not all tasks were looked through so far; there are more.", "尚未查找全部任务，还有更多。";
    losses_counted: "lost", "次失联";
    make_token: "Make a token", "创建令牌";
    mark_failed: "Mark failed", "标记失败";
    mark_succeeded: "Mark succeeded", "标记成功";
    name: "Name", "名称";
    name_or_description: "Name or description", "名称或描述";
    navigation: "Pages", "页面";
    needs: "Needs", "需要";
    needs_attention: "Needs attention", "需要关注";
    new_task: "New task", "新建任务";
    newest: "Newest", "最新";
    newest_first: "newest first", "从新到旧";
    next_fire: "Next fire", "下次触发";
    next_fires: "Next fires", "接下来的触发";
    next_page: "Next page", "下一页";
    no_audit: "Nobody has done anything yet.", "还没有任何操作。";
    no_backfills: "There are no backfills. A task's page has the button to ask for one.", "没有回填。可在任务页面发起。";
    no_breakers: "No circuit breaker has seen failures lately.", "近期没有熔断器记录到失败。";
    no_changes: "There is no difference.", "没有差异。";
    no_dead_letters: "No dead letters: nothing was given up.", "没有死信。";
    no_failures: "Nothing has failed.", "没有失败。";
    no_instance_found: "No instance is like that.", "没有符合条件的实例。";
    no_instances: "It has not fired yet.", "尚未触发。";
    no_lines: "No line is like that.", "没有符合条件的行。";
    no_output: "It has written nothing.", "没有输出。";
    no_output_yet: "It has written nothing so far.", "暂无输出。";
    no_pauses: "Nothing is paused.", "没有暂停。";
    no_sessions: "Nobody is signed in under this name.", "当前没有登录会话。";
    no_task_found: "No task is like that.", "没有符合条件的任务。";
    no_tasks_yet: "There are no tasks yet. Make the first one.", "还没有任务，来创建第一个吧。";
    no_tokens: "There are no tokens.", "没有令牌。";
    more_tokens: "There are more: all tokens", "还有更多：所有令牌";
    no_workers: "No worker is connected. Start one:", "没有已连接的执行节点。启动方法：";
    nobody: "nobody", "无";
    node: "Node", "节点";
    nodes: "Nodes", "节点";
    not_fired: "Fire times that were not fired", "未触发的时间";
    not_well: "Something is wrong", "存在异常";
    note: "Note", "说明";
    nothing_fires: "Nothing is to fire.", "没有即将触发的任务。";
    nothing_missed: "Each fire time has its instance.", "每个触发时间都有对应实例。";
    nothing_waits: "Nothing waits for a worker.", "没有等待执行节点的实例。";
    now: "now", "现在";
    number: "Number", "编号";
    of_source: "This task is of the source", "此任务来自";
    of_source_words: "What is changed here is taken back when that is applied again.", "其再次应用时会覆盖此处的修改。";
    of_this_replica: "of this replica", "仅本节点";
    older: "Older", "更早";
    oldest_first: "oldest first", "从旧到新";
    order: "Order", "顺序";
    output: "Output", "输出";
    output_missing: "{} bytes before this are not shown.", "之前的 {} 字节未显示。";
    overview: "Overview", "概览";
    overview_groups: "Of your groups: {}. Workers, replicas and counts are of everything, and take the viewer role everywhere.", "你的分组：{}。执行节点、调度节点与总数涉及全部，需要全局查看者角色。";
    owner_replica: "Owner", "归属节点";
    pages: "Pages of the list", "翻页";
    part: "Part", "部分";
    partition: "Partition", "分区";
    partitions: "Partitions", "分区";
    parts: "Parts", "各部分";
    password: "Password", "密码";
    password_again: "New password again", "再次输入新密码";
    password_current: "Password until now", "当前密码";
    password_help: "At least 12 characters. Left empty, one is made, and told once.", "至少 12 个字符。留空则自动生成，仅显示一次。";
    password_new: "New password", "新密码";
    password_own: "Your password", "你的密码";
    password_set: "Password set", "密码设置于";
    pause: "Pause", "暂停";
    pause_everything: "Pause everything", "全部暂停";
    pause_something: "Pause a group or a task", "暂停分组或任务";
    paused: "paused", "已暂停";
    pauses: "Pauses", "暂停";
    pauses_words: "Nothing of what is paused starts; what runs goes on.", "暂停期间不启动新实例，运行中的继续。";
    payload: "Payload", "负载";
    preview: "Preview", "预览";
    progress: "Progress", "进度";
    range: "Range", "范围";
    reason: "Reason", "原因";
    recent_instances: "Recent instances", "最近的实例";
    reload: "Load again", "重新加载";
    remove: "Remove", "删除";
    removed: "removed", "已删除";
    replay: "Run again", "重跑";
    replay_all: "Run all again", "全部重跑";
    replay_all_of: "Run all again of", "全部重跑：";
    replay_selected: "Run selected again", "重跑所选";
    replica: "Replica", "调度节点";
    replicas: "Replicas", "调度节点";
    replicas_words: "Who schedules, and which partitions each of them owns.", "参与调度的节点及其拥有的分区。";
    rerun: "Run again", "重跑";
    rerun_from: "Run again from here", "从此处重跑";
    result: "Result", "结果";
    resume: "Resume", "恢复";
    revoke: "Revoke", "吊销";
    role_admin: "admin", "管理员";
    role_editor: "editor", "编辑者";
    role_operator: "operator", "操作员";
    role_viewer: "viewer", "查看者";
    roles: "Roles", "角色";
    run: "Run", "轮次";
    save: "Save", "保存";
    search_log: "Text in it", "包含文字";
    search_tasks: "Search tasks", "搜索任务";
    select: "Select", "选择";
    select_all: "Select all", "全选";
    selection: "Selection", "所选项";
    session_begun: "Signed in", "登录时间";
    sessions: "Sessions", "登录会话";
    set_password: "Set the password", "设置密码";
    settings: "Settings", "设置";
    sign_out: "Sign out", "退出登录";
    sign_out_everywhere: "Sign out everywhere", "全部退出登录";
    sign_out_others: "Sign out everywhere else", "退出其他登录";
    signed_in_as: "Signed in as", "当前用户";
    silent: "silent", "无响应";
    since: "Since", "始于";
    since_when: "since", "始于";
    skip: "Skip", "跳过";
    skip_link: "Skip to the content", "跳到正文";
    slots: "Slots", "名额";
    slots_held: "slots held", "名额占用";
    started_by: "Started by", "触发来源";
    state: "State", "状态";
    steady: "Fire more than once a minute", "每分钟触发多次";
    steady_words: "They are not drawn above.", "未绘入上图。";
    stopped: "stopped", "中止";
    tags: "Tags", "标签";
    take_over: "Take the task over", "接管此任务";
    take_over_words: "What is saved here is taken back when that is applied again. Change it there, or tick the box to take the task over.", "其再次应用时会覆盖此处的修改。请在来源处修改，或勾选以接管。";
    task: "Task", "任务";
    task_is_paused: "This task is paused", "此任务已暂停";
    task_removed: "This task was removed.", "此任务已删除。";
    task_removed_words: "Its history is still here; it fires no more.", "历史记录保留，不再触发。";
    tasks: "Tasks", "任务";
    tasks_at_once: "tasks at once", "个任务同时触发";
    tasks_in_memory: "Tasks in memory", "内存中的任务";
    theme: "Theme", "主题";
    theme_auto: "Auto", "跟随系统";
    theme_dark: "Dark", "深色";
    theme_light: "Light", "浅色";
    this_one: "this one", "当前";
    throttled: "{} instances wait for the rate limit of their task.", "{} 个实例在等待任务的速率限制。";
    tile_delay: "Start delay, median", "启动延迟（中位）";
    tile_delay_most: "99 of 100 within", "99% 不超过";
    tile_failed: "failed", "个失败";
    tile_hour: "Throughput", "吞吐";
    tile_inbox: "in inboxes", "条待处理";
    tile_replicas: "replicas alive: {}", "调度节点在线：{}";
    tile_retrying: "retrying", "个等待重试";
    tile_running: "Running", "运行中";
    tile_success: "Success", "成功率";
    tile_waiting: "Waiting", "等待中";
    time_zone: "Show times in", "时间显示的时区";
    timeline: "Timeline", "时间线";
    to_look_at: "{} to look at", "{} 项需关注";
    to_utc: "To (UTC)", "止（UTC）";
    to_version: "To version", "到版本";
    today: "today", "今天";
    token: "Token", "令牌";
    token_for: "What it is for", "用途";
    token_grants_help: "Left empty, it may what its owner may.", "留空则与所有者权限相同。";
    tokens: "Tokens", "令牌";
    tokens_all: "Everybody's", "所有人的";
    tokens_own: "Mine", "我的";
    tokens_words: "By which programs show who they are. The database has a digest of each, so none is ever shown again.", "程序以令牌证明身份。数据库只存其摘要，因此不会再次显示。";
    told_once: "This is shown now and never again: keep it where only those see it who need it.", "仅此一次显示，请妥善保存。";
    took: "Took", "耗时";
    trace: "Trace", "追踪";
    trigger: "Trigger", "触发方式";
    trigger_after: "after {}", "{} 之后";
    trigger_delay_after_end: "{} after the last end", "上次结束后 {}";
    trigger_manual: "by hand", "手动";
    trigger_now: "Trigger now", "立即触发";
    trigger_once: "once, after {}", "{} 后一次";
    trigger_rate: "every {}", "每 {}";
    trigger_verb: "Trigger", "触发";
    tzdata: "Time zone data", "时区数据";
    unreadable: "This program can't read this version of the task.", "本程序无法读取任务的这个版本。";
    users: "Users", "用户";
    users_words: "Who may sign in, and what each of them may do.", "可以登录的人及其权限。";
    version: "Version", "版本";
    versions: "Versions", "版本";
    waits_for_room: "waits for room", "等待空位";
    what: "What", "对象";
    what_waits: "What waits for a worker", "等待执行节点";
    when_it_fires: "When it fires", "触发规则";
    why: "Why", "原因";
    with_parts: "With shards and nodes", "包含分片与节点";
    worker: "Worker", "执行节点";
    workers: "Workers", "执行节点";
    workers_words: "As this replica sees them.", "本节点所见的执行节点。";
    workflow: "workflow", "工作流";
    wrong_password: "The name or the password is wrong.", "用户名或密码错误。";
    wrong_with_it: "Problems: {}", "错误：{} 处";
    you: "You", "你";
    your_time: "Your time", "你的时间";
    your_zone: "Your time zone", "你的时区";
    zone_of_browser: "that of the browser", "浏览器的时区";
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    /// What stands between braces, in order of the alphabet.
    fn places(text: &str) -> Vec<&str> {
        let mut places: Vec<_> = text.split('{').skip(1).filter_map(|rest| rest.split('}').next()).collect();
        places.sort_unstable();
        places
    }

    #[test]
    fn every_text_is_there_in_each_language() {
        for (name, en, zh) in ALL {
            assert!(!en.trim().is_empty() && !zh.trim().is_empty(), "{name} is empty");
            assert!(en.is_ascii(), "{name}: {en}");
            assert!(!zh.is_ascii(), "{name} is not translated: {zh}");
            assert_eq!(places(en), places(zh), "{name} is filled in differently");
        }
    }

    fn templates() -> Vec<(PathBuf, String)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/console");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
    }

    /// Words that are the same in every language: names, and what is typed.
    const NAMES: &[&str] = &[
        "Punctual",
        "English",
        "UTC",
        "docs/task-file.md",
        "/api/v1",
        "/api/v1/cluster",
        "h",
        "j",
        "k",
        "n",
        "g",
        "punctual worker --server HOST:PORT",
    ];

    /// What people would read of a template that is not from the catalogue.
    fn literals(template: &str) -> Vec<String> {
        let mut text = template.to_owned();
        for (open, close) in [("{%", "%}"), ("{#", "#}"), ("{{", "}}")] {
            while let Some(begin) = text.find(open) {
                let end = text[begin..].find(close).unwrap() + begin + close.len();
                text.replace_range(begin..end, "\u{1}");
            }
        }
        let mut found = Vec::new();
        let mut rest = text.as_str();
        while let Some(begin) = rest.find('<') {
            found.push(rest[..begin].to_owned());
            let end = rest[begin..].find('>').unwrap() + begin;
            for attribute in ["aria-label=\"", "title=\"", "placeholder=\"", "alt=\"", "data-confirm=\""] {
                let values = rest[begin..end].split(attribute).skip(1).filter_map(|value| value.split('"').next());
                found.extend(values.map(str::to_owned));
            }
            rest = &rest[end + 1..];
        }
        found.push(rest.to_owned());
        let pieces =
            found.iter().flat_map(|text| text.split('\u{1}')).map(|piece| piece.trim_matches(|c: char| c.is_whitespace() || c == '·'));
        let is_said = |piece: &&str| piece.chars().any(char::is_alphabetic) && !piece.starts_with("&") && *piece != "中文";
        pieces.filter(is_said).filter(|piece| !NAMES.contains(piece)).map(str::to_owned).collect()
    }

    #[test]
    fn templates_say_nothing_that_is_not_translated() {
        assert_eq!(literals("<p title=\"Hello\">{{ w.x }} there<b>{% if a %}b{% endif %}</b></p>"), ["Hello", "there", "b"]);
        let all = templates();
        assert!(all.len() > 15);
        for (path, template) in all {
            assert_eq!(literals(&template), [""; 0], "{}", path.display());
        }
    }

    #[test]
    fn templates_have_nothing_inline_and_escape_everything() {
        for (path, template) in templates() {
            let path = path.display();
            for inline in ["<style", "style=\"", "javascript:", "|safe", "onclick", "onsubmit", "onload", "onchange", "{% autoescape"] {
                assert!(!template.contains(inline), "{path} has {inline}");
            }
            for script in template.split("<script").skip(1) {
                assert!(script.starts_with(" src=") && script.contains("></script>"), "{path} has a script inside");
            }
        }
    }
}
