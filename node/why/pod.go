package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/manifests"
)

// settled is how long a restarted container must have run before the restart is no longer reported.
const settled = 2 * time.Minute

// pod makes the chain of a pod.
func (f Facts) pod(p Pod) Chain {
	b := newBuilder(f, p, Chain{Pod: p.key()})
	b.wanted()
	b.runs()
	b.rolledBack()
	b.causes()
	b.more()
	b.updating()
	b.lastSeen()
	b.edit()
	b.chain.Fine = b.chain.Reason == ""
	b.chain.Text = b.headline()
	return b.chain
}

func (b *builder) headline() string {
	switch {
	case b.chain.Fine && b.Object.Status.Phase == corev1.PodSucceeded:
		return b.key() + " has completed"
	case b.chain.Fine:
		return b.key() + " is fine"
	}
	state := "is not ready"
	switch {
	case b.Daemon != "":
		state = "has unknown status: " + b.silence()
	case b.chain.Reason == cause.Removing, b.Trouble.Kind == model.TroubleRemoving:
		state = "is being removed"
	case b.chain.Reason == cause.Updating, b.chain.Reason == cause.InProgress && b.ready():
		state = "is being updated"
	case b.chain.Reason == cause.InProgress:
		state = "is starting"
	case b.Object.Status.Phase == corev1.PodFailed:
		state = "has failed"
	case b.chain.Reason == cause.RuntimeDown, b.Trouble.Kind == model.TroubleBlind || b.Object.Status.Phase == corev1.PodUnknown:
		state = "has unknown status"
	case b.ready():
		state = "is ready, with problems"
	}
	return b.key() + " " + state
}

func (b *builder) ready() bool {
	c := b.condition(corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func (b *builder) wanted() {
	text := cmp.Or(b.Where, "a manifest that is no longer known")
	if b.Revision > 0 {
		text += fmt.Sprintf(", revision %d", b.Revision)
	}
	if of := b.Object.OwnerReferences; len(of) > 0 {
		text += fmt.Sprintf(", created by %s %s", of[0].Kind, of[0].Name)
	}
	b.add(Step{Kind: Wanted, Text: text})
}

// runs lists what runs.
func (b *builder) runs() {
	var running []string
	all := b.statuses()
	for i := range all {
		st := &all[i]
		if st.State.Running == nil {
			continue
		}
		text := fmt.Sprintf("%s (%s, running for %s)", st.Name, st.Image, short(b.Now.Sub(st.State.Running.StartedAt.Time)))
		if st.RestartCount > 0 {
			text = strings.TrimSuffix(text, ")") + ", restarted " + times(int(st.RestartCount)) + ")"
		}
		running = append(running, text)
	}
	lasting := 0
	for range manifests.LongRunningContainers(&b.Object.Spec) {
		lasting++
	}
	switch {
	case b.Object.Status.Phase == corev1.PodUnknown && len(running) == 0:
		b.add(Step{Kind: Runs, Text: "unknown: the runtime does not respond"})
	case len(running) == 0:
		b.add(Step{Kind: Runs, Text: "nothing"})
	case len(running) < lasting:
		b.add(Step{Kind: Runs, Text: fmt.Sprintf("only %s", strings.Join(running, ", "))})
	default:
		b.add(Step{Kind: Runs, Text: strings.Join(running, ", ")})
	}
}

// damaged adds a network that could not be repaired, which may be the cause of everything after it.
func (b *builder) damaged() {
	if b.NetworkDamaged == "" || b.Object.Spec.HostNetwork {
		return
	}
	b.cause(cause.NetworkDamaged, "", "%s", oneLine(b.NetworkDamaged))
	b.next(time.Time{}, "the repair is retried every 10 s, and as soon as something changes")
	b.act("undo the change in the message on this machine, or remove the manifest and add it again, which recreates the pod")
}

// causes adds the causes.
func (b *builder) causes() {
	if b.Daemon != "" {
		b.remembered()
		return
	}
	b.damaged()
	op, held := &operation{b}, &heldPod{b}
	if d := op.longest(slow); d != nil {
		if b.Trouble.Kind == model.TroubleRemoving {
			held.removing()
		}
		op.stalled(d)
		if b.Trouble.Kind == model.TroubleInProgress || b.Trouble.Kind == model.TroubleRemoving || b.Trouble.Kind == "" {
			return
		}
	}
	switch b.Trouble.Kind {
	case model.TroubleBlind:
		b.blind()
	case model.TroubleRemoving:
		held.removing()
	case model.TroubleHeld:
		held.held()
	case model.TroubleHalted:
		held.halted()
	case model.TroubleStep:
		(&failedStep{b}).explain()
	case model.TroubleFailed:
		held.failed()
	case model.TroubleExited:
		b.waiting()
		if b.EndedBy[b.Trouble.Container] != "" && !b.NextTry.IsZero() {
			op.endedByOthers(b.Trouble.Container)
			return
		}
		explainExit(b, b.Trouble.Container)
	case model.TroubleProbe:
		b.waiting()
		(&failedProbe{builder: b}).explain()
	case model.TroubleResize:
		b.cause(cause.Resize, "", "its resources are not resized yet: %s", b.Trouble.Message)
		b.retried("retry")
		b.act("set a limit above the current usage of the container, or restart it")
	case model.TroubleKept:
		b.kept()
	case model.TroubleInProgress:
		op.inProgress()
	default:
		b.quiet()
	}
}

// more adds what is wrong with other containers. The reason of the chain stays that of the first one.
func (b *builder) more() {
	if b.Daemon != "" || b.chain.Reason == "" {
		return
	}
	for _, t := range b.More[:min(len(b.More), maxListed)] {
		if b.EndedBy[t.Container] != "" {
			continue
		}
		p := b.Pod
		p.Trouble, p.NextTry, p.Doing, p.Pulls, p.NetworkDamaged = t, time.Time{}, nil, nil, ""
		other := newBuilder(b.Facts, p, Chain{})
		other.causes()
		for _, s := range other.chain.Steps {
			if s.Kind == Cause || s.Kind == Output || s.Kind == Action {
				b.add(s)
			}
		}
	}
}

// rolledBack is about a pod that runs by an earlier revision than its manifest.
func (b *builder) rolledBack() {
	r := b.Rollback
	if r.Text == "" {
		return
	}
	b.cause(cause.RolledBack, "", "%s", r.Text)
	if b.Trouble.Kind != "" {
		return
	}
	b.next(time.Time{}, "nothing, until the manifest changes")
	switch {
	case r.Culprit != "":
		b.act("correct the manifest of pod %s (`monopod why -n %s %s`); an edit of any pod of the group retries all of them", r.Culprit, b.Object.Namespace, r.Culprit)
	case r.ByHand:
		b.act("to go forward again, run `monopod rollback -n %s pod %s --to %d` or edit %s", b.Object.Namespace, b.Object.Name, r.Wanted, b.place())
	default:
		b.act("correct %s, which becomes a new revision; `monopod history -n %s %s` shows what failed", b.place(), b.Object.Namespace, b.Object.Name)
	}
}

// updating is about a change that waits for others, or is on trial.
func (b *builder) updating() {
	switch {
	case b.Update == "" || b.Rollback.Text != "":
		return
	case b.chain.Reason != "" && b.chain.Reason != cause.InProgress: // not what is in the way, but what comes of it
		i := slices.IndexFunc(b.chain.Steps, func(s Step) bool { return s.Kind == Action })
		if i < 0 {
			i = len(b.chain.Steps)
		}
		b.chain.Steps = slices.Insert(b.chain.Steps, i, Step{Kind: Next, Text: b.Update})
		return
	}
	b.cause(cause.Updating, "", "%s", b.Update)
	b.next(time.Time{}, "it continues automatically; `monopod history -n %s %s` shows its progress", b.Object.Namespace, b.Object.Name)
}

// lastSeen adds that a healthy pod cannot be observed any longer.
func (b *builder) lastSeen() {
	if b.Runtime == "" || b.chain.Reason != "" {
		return
	}
	b.cause(cause.RuntimeDown, "", "it was fine when last observed; now the runtime does not respond: %s", oneLine(b.Runtime))
	b.next(time.Time{}, "its status is updated as soon as the runtime responds; running containers continue")
	b.add(b.runtimeStep())
}

// remembered adds what the disk has about the pod while no daemon runs.
func (b *builder) remembered() {
	b.cause(cause.DaemonDown, "", "%s, so the status of the pod is unknown", b.silence())
	if len(b.Events) > 0 {
		b.add(Step{Kind: Events, Text: "latest recorded events", Lines: b.Events})
	}
	for _, name := range slices.Sorted(maps.Keys(b.Output)) {
		b.add(Step{Kind: Output, Container: name, Text: "last lines of container " + name, Lines: b.Output[name]})
	}
}

// quiet explains a pod without a problem of the agent.
func (b *builder) quiet() {
	switch {
	case b.Trouble.Text != "":
		b.cause(cause.Other, "", "%s", b.Trouble.Text)
		b.retried("retry")
	case b.Object.Status.Phase == corev1.PodUnknown:
		b.cause(cause.RuntimeDown, "", "%s", cmp.Or(oneLine(b.Runtime), "it has not been observed yet"))
		b.next(time.Time{}, "its status is updated as soon as the runtime responds; running containers continue")
		b.add(b.runtimeStep())
	case b.Object.Status.Phase == corev1.PodSucceeded:
		b.next(time.Time{}, "it completed successfully and is not restarted")
	case !b.ready():
		b.gates()
	case b.LogsDropped != "":
		b.cause(cause.LogsDropped, "", "it is running, but %s", b.LogsDropped)
		b.next(time.Time{}, "logging resumes as soon as its log file can be written; the log then states the missing amount")
		b.act("free disk space (see df -h), or lower containerLogMaxSize or podLogsMaxSize")
	case b.NotMirrored != "":
		b.cause(cause.NotMirrored, "", "it is running, but the API server does not show its current status: %s", b.NotMirrored)
		b.next(time.Time{}, "retry after 1 s to 1 min; nothing on this machine waits for it")
		b.act("change the policy of the API server, or the manifest; see monopod events")
	default:
		b.restarted()
	}
}

// gates is about a pod that only its readiness gates keep from being ready.
func (b *builder) gates() {
	if c := b.condition(corev1.PodReady); c != nil && c.Reason == "ReadinessGatesNotReady" {
		b.cause(cause.Gate, "", "its containers are ready, but spec.readinessGates requires conditions that a client of the Kubernetes API has to set")
		b.act("check the controller that sets them, or remove readinessGates from %s", b.place())
		return
	}
	b.cause(cause.InProgress, "", "it is about to become ready")
	b.next(time.Time{}, "no action is needed")
}

// restarted adds a container that runs, but has only just been restarted.
func (b *builder) restarted() {
	all := b.statuses()
	for i := range all {
		st := &all[i]
		last := st.LastTerminationState.Terminated
		if st.State.Running == nil || last == nil || last.ExitCode == 0 && b.StoppedFor[st.Name] == "" || b.EndedBy[st.Name] != "" || b.Now.Sub(st.State.Running.StartedAt.Time) > settled {
			continue
		}
		b.cause(cause.Restarted, st.Name, "container %s was restarted only %s ago", st.Name, short(b.Now.Sub(st.State.Running.StartedAt.Time)))
		explainExit(b, st.Name)
		return
	}
}

func (b *builder) blind() {
	b.cause(cause.RuntimeDown, "", "containerd does not respond: %s", oneLine(b.Trouble.Message))
	b.add(Step{Kind: Next, Text: "it is retried; running containers continue meanwhile", At: b.NextTry})
	b.add(b.runtimeStep())
}

// runtimeStep is what to do about a containerd that does not answer.
func (f Facts) runtimeStep() Step {
	if f.Places.Endpoint != "" {
		return Step{Kind: Action, Text: fmt.Sprintf("check that containerd is running and responds on %s (systemctl status containerd)", f.Places.Endpoint)}
	}
	return Step{Kind: Action, Text: "check " + f.Instance.Log() + ", and whether the disk is full (df -h)"}
}

// placeOfPod names where another pod is written.
func (b *builder) placeOfPod(key string) string {
	for i := range b.Pods {
		if b.Pods[i].key() == key && b.Pods[i].Where != "" {
			return " (defined in " + b.Pods[i].Where + ")"
		}
	}
	return ""
}

func inFile(path string) string {
	if path == "" {
		return " in the configuration"
	}
	return " in " + path
}

func (b *builder) anyRunning() bool {
	return slices.ContainsFunc(b.statuses(), func(st corev1.ContainerStatus) bool { return st.State.Running != nil })
}

// waiting puts in front that the containers of the pod wait for an init container.
func (b *builder) waiting() {
	if c := b.Trouble.Container; c != "" && b.isInit(c) && !b.anyRegular() {
		b.cause(cause.InitContainer, "", "its containers wait for init container %s", c)
	}
}

// anyRegular reports whether a container other than an init container has been started.
func (b *builder) anyRegular() bool {
	return slices.ContainsFunc(b.Object.Status.ContainerStatuses, func(st corev1.ContainerStatus) bool {
		return st.State.Running != nil || st.State.Terminated != nil || st.LastTerminationState.Terminated != nil
	})
}

// kept is about a pod whose manifest has not been read, unless it was refused: then edit tells.
func (b *builder) kept() {
	if len(b.refused()) == 0 {
		b.cause(cause.Kept, "", "%s", b.Trouble.Text)
		b.next(time.Time{}, "it follows its manifest again as soon as its source can be read")
	}
}

// refused returns the refused inputs that the pod is from.
func (b *builder) refused() []model.Input {
	return slices.DeleteFunc(slices.Clone(b.Inputs), func(in model.Input) bool {
		return in.State != model.InputRefused || !slices.Contains(b.podsOf(&in), b.key())
	})
}

// edit adds that a newer version of its file was refused.
func (b *builder) edit() {
	for _, in := range b.refused() {
		b.cause(cause.InputRefused, "", "%s was refused%s; the pod continues with its last good content", in.Input, b.ago(in.Since))
		b.chain.Steps[len(b.chain.Steps)-1].Lines = in.Errors
		b.next(time.Time{}, "the file is re-read as soon as it is saved")
		b.act("fix the errors above, and check with `monopod validate %s`", in.Input)
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
