//! The engine's own terms in words: states, causes, outcomes. A term without its words does not compile.

use punctual_core::backfill::BackfillState;
use punctual_core::breaker::BreakerState;
use punctual_core::cron::{LeftOut, Mark};
use punctual_core::instance::{Cause, Origin, State};
use punctual_core::occurrence::Outcome;
use punctual_core::routing::Nobody;
use punctual_driver::ports::AuditAction;

use super::page::Lang;

pub(super) fn state(state: State, lang: Lang) -> &'static str {
    match state {
        State::Waiting => lang.pick("waiting", "等待中"),
        State::Created => lang.pick("created", "已创建"),
        State::Dispatched => lang.pick("dispatched", "已派发"),
        State::Running => lang.pick("running", "运行中"),
        State::Retrying => lang.pick("retrying", "等待重试"),
        State::Succeeded => lang.pick("succeeded", "成功"),
        State::Failed => lang.pick("failed", "失败"),
        State::TimedOut => lang.pick("timed out", "超时"),
        State::DeadLettered => lang.pick("dead letter", "死信"),
        State::Cancelled => lang.pick("cancelled", "已取消"),
        State::Skipped => lang.pick("skipped", "已跳过"),
    }
}

pub(super) fn origin(origin: Origin, lang: Lang) -> &'static str {
    match origin {
        Origin::Schedule => lang.pick("its schedule", "按计划"),
        Origin::CatchUp => lang.pick("catching up", "补触发"),
        Origin::Manual => lang.pick("by hand", "手动"),
        Origin::Chain => lang.pick("another task", "上游任务"),
        Origin::Rerun => lang.pick("a rerun", "重跑"),
        Origin::Backfill => lang.pick("a backfill", "回填"),
        Origin::Call => lang.pick("a node of a workflow", "工作流节点"),
    }
}

pub(super) fn cause(cause: Cause, lang: Lang) -> &'static str {
    match cause {
        Cause::Called => lang.pick("a node of a workflow called the task", "被工作流节点调用"),
        Cause::Calls => lang.pick("it has called another task", "已调用另一个任务"),
        Cause::CallEnded => lang.pick("what it had called has ended", "所调用的任务已结束"),
        Cause::Fired => lang.pick("its fire time came", "到达触发时间"),
        Cause::CaughtUp => lang.pick("a missed fire time is made up for", "补上错过的触发"),
        Cause::Triggered => lang.pick("somebody asked for it", "手动触发"),
        Cause::LimitReached => lang.pick("the task was at its concurrency limit", "达到并发上限"),
        Cause::SlotFree => lang.pick("a place under the limit became free", "并发名额空出"),
        Cause::DelayElapsed => lang.pick("its delay was over", "延迟结束"),
        Cause::Assigned => lang.pick("a worker was chosen", "已选定执行节点"),
        Cause::Started => lang.pick("the worker began", "执行节点开始运行"),
        Cause::Returned => lang.pick("the worker gave it back unbegun", "执行节点未开始即退回"),
        Cause::Finished => lang.pick("the handler has ended", "处理程序结束"),
        Cause::TimedOut => lang.pick("its time was over", "运行超时"),
        Cause::WorkerLost => lang.pick("its worker was lost", "执行节点失联"),
        Cause::BackoffElapsed => lang.pick("the wait before the next attempt was over", "重试等待结束"),
        Cause::AttemptsExhausted => lang.pick("no attempt was left", "重试次数用尽"),
        Cause::Quarantined => lang.pick("it kept losing its workers", "多次失去执行节点，已隔离"),
        Cause::OutcomeUnknown => lang.pick("a worker may have begun, and the task must not run twice", "结果未知且任务不可重复执行"),
        Cause::Replaced => lang.pick("a newer instance took its place", "被更新的实例取代"),
        Cause::CancelRequested => lang.pick("somebody cancelled it", "被人取消"),
        Cause::TaskRemoved => lang.pick("the task was removed", "任务已删除"),
        Cause::TaskDisabled => lang.pick("the task was disabled", "任务已停用"),
        Cause::Chained => lang.pick("another task's instance has ended", "上游任务结束"),
        Cause::Divided => lang.pick("divided into parts", "已拆分"),
        Cause::PartsEnded => lang.pick("all its parts have ended", "各部分均已结束"),
        Cause::ParentEnded => lang.pick("what it is a part of has ended", "所属整体已结束"),
        Cause::NotRetried => lang.pick("its failure is not one that is retried", "此类失败不重试"),
        Cause::RetryBudgetExhausted => lang.pick("the task has used up its retries", "任务的重试预算用尽"),
        Cause::RerunRequested => lang.pick("somebody had it run once more", "被人要求重跑"),
        Cause::WorkerGone => lang.pick("the only worker that it was for is gone", "唯一可用的执行节点已离开"),
        Cause::TooManyParts => lang.pick("it would have too many parts", "拆分数超过上限"),
        Cause::ResultsTooLarge => lang.pick("its parts have answered too much", "各部分结果过大"),
        Cause::Rescheduled => lang.pick("somebody changed its time", "被人改期"),
        Cause::SkipRequested => lang.pick("somebody wanted it left out", "被人跳过"),
        Cause::KillRequested => lang.pick("somebody killed it", "被人强制终止"),
        Cause::RuleMet => lang.pick("the nodes before it have come to what its rule wants", "上游节点满足其规则"),
        Cause::NodeSkipped => lang.pick("its rule or condition keeps it from starting", "规则或条件不满足"),
        Cause::Marked => lang.pick("somebody said what it has come to", "由人标记"),
        Cause::CarriedOver => lang.pick("carried over from the run before", "沿用上一轮的结果"),
        Cause::Backfilled => lang.pick("a past fire time is made up for", "回填过去的触发时间"),
    }
}

pub(super) fn outcome(outcome: Outcome, lang: Lang) -> &'static str {
    match outcome {
        Outcome::Coalesced => lang.pick("missed, and made up for by one later instance", "错过，由之后的一个实例合并补上"),
        Outcome::MisfireSkipped => lang.pick("missed, and skipped as the task says", "错过，按策略跳过"),
        Outcome::DeadlinePassed => lang.pick("missed by more than the task's deadline", "错过且超过期限"),
        Outcome::CatchUpLimit => lang.pick("missed, beyond what is made up for", "错过且超过补触发上限"),
        Outcome::LimitReached => lang.pick("the task was at its concurrency limit", "达到并发上限，已丢弃"),
        Outcome::QueueFull => lang.pick("the task's queue was full", "任务队列已满，已丢弃"),
        Outcome::Disabled => lang.pick("the task was disabled", "任务停用期间"),
        Outcome::Withdrawn => lang.pick("the task was edited or removed before", "任务先被修改或删除"),
        Outcome::ChainTooLong => lang.pick("too many tasks had fired one another", "连锁触发过长"),
        Outcome::BlackedOut => lang.pick("it lies in a blackout", "处于禁止时段"),
        Outcome::ExcludedDay => lang.pick("the calendar excludes the day", "日历排除当天"),
        Outcome::Paused => lang.pick("the task was paused", "任务暂停期间"),
    }
}

pub(super) fn nobody(nobody: Nobody, lang: Lang) -> &'static str {
    match (lang, nobody) {
        (Lang::En, nobody) => nobody.reason(),
        (Lang::Zh, Nobody::NotConnected) => "没有已连接的执行节点",
        (Lang::Zh, Nobody::PinnedWorkerAway) => "指定的执行节点未连接",
        (Lang::Zh, Nobody::UnknownHandler) => "没有执行节点认识该处理程序",
        (Lang::Zh, Nobody::LacksTags) => "没有执行节点具备所需标签",
        (Lang::Zh, Nobody::TooOld) => "合适的执行节点版本过旧",
        (Lang::Zh, Nobody::NoShards) => "合适的执行节点不支持分片，请升级",
        (Lang::Zh, Nobody::NoNodes) => "合适的执行节点不支持工作流节点与映射，请升级",
        (Lang::Zh, Nobody::Draining) => "合适的执行节点都在退出",
        (Lang::Zh, Nobody::Reserved) => "空闲名额都为更高优先级保留",
    }
}

pub(super) fn breaker(state: &BreakerState, lang: Lang) -> &'static str {
    match state {
        BreakerState::Closed => lang.pick("closed", "闭合"),
        BreakerState::Open { .. } => lang.pick("open", "断开"),
        BreakerState::HalfOpen { .. } => lang.pick("probing", "试探中"),
    }
}

pub(super) fn backfill(state: BackfillState, lang: Lang) -> &'static str {
    match state {
        BackfillState::Running => lang.pick("running", "进行中"),
        BackfillState::Done => lang.pick("done", "已完成"),
        BackfillState::Cancelled => lang.pick("cancelled", "已取消"),
    }
}

/// What is special about a fire time; empty where nothing is.
pub(super) fn mark(mark: Mark, lang: Lang) -> &'static str {
    match mark {
        Mark::Normal => "",
        Mark::AfterGap => lang.pick("after the gap: the clock goes forward over its own time", "时钟拨快跳过了原定时间，顺延到其后"),
        Mark::ShiftedFromGap => lang.pick("shifted out of the gap", "时钟拨快，按跳过的时长顺延"),
        Mark::FirstPass => lang.pick("this time comes twice: the first", "该时刻出现两次：第一次"),
        Mark::SecondPass => lang.pick("this time comes twice: the second", "该时刻出现两次：第二次"),
        Mark::DayOfTransition => lang.pick("the clock changes that day", "当天时钟调整"),
    }
}

pub(super) fn left_out(reason: LeftOut, lang: Lang) -> &'static str {
    match reason {
        LeftOut::ExcludedDay => lang.pick("left out: excluded day", "不触发：排除日"),
        LeftOut::BlackedOut => lang.pick("left out: blackout", "不触发：禁止时段"),
    }
}

pub(super) fn action(action: AuditAction, lang: Lang) -> &'static str {
    match action {
        AuditAction::Create => lang.pick("made the task", "创建任务"),
        AuditAction::Change => lang.pick("changed the task", "修改任务"),
        AuditAction::Remove => lang.pick("removed the task", "删除任务"),
        AuditAction::Trigger => lang.pick("triggered", "触发"),
        AuditAction::Cancel => lang.pick("cancelled", "取消"),
        AuditAction::Kill => lang.pick("killed", "强制终止"),
        AuditAction::Skip => lang.pick("skipped", "跳过"),
        AuditAction::Rerun => lang.pick("ran again", "重跑"),
        AuditAction::Pause => lang.pick("paused", "暂停"),
        AuditAction::Resume => lang.pick("resumed", "恢复"),
        AuditAction::Drain => lang.pick("drained", "排空"),
        AuditAction::Undrain => lang.pick("ended the draining of", "取消排空"),
        AuditAction::Discard => lang.pick("discarded the dead letter", "丢弃死信"),
        AuditAction::CancelTrigger => lang.pick("cancelled a trigger", "取消触发"),
        AuditAction::Reschedule => lang.pick("changed the time of a trigger", "触发改期"),
        AuditAction::MarkNode => lang.pick("said what a node has come to", "标记节点"),
        AuditAction::Backfill => lang.pick("asked for a backfill", "请求回填"),
        AuditAction::CancelBackfill => lang.pick("ended a backfill", "终止回填"),
        AuditAction::AddUser => lang.pick("added a user", "添加用户"),
        AuditAction::ChangeUser => lang.pick("changed a user", "修改用户"),
        AuditAction::SetPassword => lang.pick("set a password", "设置密码"),
        AuditAction::RemoveUser => lang.pick("removed a user", "删除用户"),
        AuditAction::MakeToken => lang.pick("made a token", "创建令牌"),
        AuditAction::RevokeToken => lang.pick("revoked a token", "吊销令牌"),
        AuditAction::SignIn => lang.pick("signed in", "登录"),
        AuditAction::SignOut => lang.pick("signed out", "退出登录"),
    }
}
