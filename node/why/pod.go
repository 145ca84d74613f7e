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
		return b.key() + " has done its work"
	case b.chain.Fine:
		return b.key() + " is fine"
	}
	state := "is not ready"
	switch {
	case b.Daemon != "":
		state = "cannot be asked about: monopod does not run"
	case b.chain.Reason == cause.Removing, b.Trouble.Kind == model.TroubleRemoving:
		state = "is being removed"
	case b.chain.Reason == cause.Underway, b.chain.Reason == cause.Updating:
		state = "is on its way"
	case b.Object.Status.Phase == corev1.PodFailed:
		state = "has failed"
	case b.chain.Reason == cause.RuntimeDown, b.Trouble.Kind == model.TroubleBlind || b.Object.Status.Phase == corev1.PodUnknown:
		state = "cannot be seen"
	case b.ready():
		state = "is ready, but not all is as it should be"
	}
	return b.key() + " " + state
}

func (b *builder) ready() bool {
	c := b.condition(corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func (b *builder) wanted() {
	text := cmp.Or(b.Where, "by a manifest that is not known any more")
	if b.Revision > 0 {
		text += fmt.Sprintf(", revision %d", b.Revision)
	}
	if of := b.Object.OwnerReferences; len(of) > 0 {
		text += fmt.Sprintf(", made for %s %s", of[0].Kind, of[0].Name)
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
		text := fmt.Sprintf("%s (%s, since %s)", st.Name, st.Image, short(b.Now.Sub(st.State.Running.StartedAt.Time)))
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
		b.add(Step{Kind: Runs, Text: "not known: containers cannot be seen now"})
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
	b.next(time.Time{}, "the repair is tried again every 10 s, and as soon as something changes")
	b.act("undo what the message names on this machine, or take the manifest away and put it back, which makes the pod again")
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
		if b.Trouble.Kind == model.TroubleUnderway || b.Trouble.Kind == model.TroubleRemoving || b.Trouble.Kind == "" {
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
		b.cause(cause.Resize, "", "its resources are not changed yet: %s", b.Trouble.Message)
		b.retried("it is tried again")
		b.act("give the container a limit above what it uses now, or restart it")
	case model.TroubleKept:
		b.cause(cause.Kept, "", "%s", b.Trouble.Text)
		b.next(time.Time{}, "it follows its manifest again as soon as its source can be read")
	case model.TroubleUnderway:
		op.underway()
	default:
		b.quiet()
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
		b.act("correct the manifest of pod %s: an edit of any pod of the group has all of them tried again (`monopod why -n %s %s`)", r.Culprit, b.Object.Namespace, r.Culprit)
	case r.ByHand:
		b.act("`monopod rollback -n %s pod %s --to %d` goes forward again, and so does an edit of %s", b.Object.Namespace, b.Object.Name, r.Wanted, b.place())
	default:
		b.act("correct %s, which is tried as a new revision; `monopod history -n %s %s` shows what went wrong", b.place(), b.Object.Namespace, b.Object.Name)
	}
}

// updating is about a change that waits for others, or is on trial.
func (b *builder) updating() {
	switch {
	case b.Update == "" || b.Rollback.Text != "":
		return
	case b.chain.Reason != "" && b.chain.Reason != cause.Underway: // not what is in the way, but what comes of it
		i := slices.IndexFunc(b.chain.Steps, func(s Step) bool { return s.Kind == Action })
		if i < 0 {
			i = len(b.chain.Steps)
		}
		b.chain.Steps = slices.Insert(b.chain.Steps, i, Step{Kind: Next, Text: b.Update})
		return
	}
	b.cause(cause.Updating, "", "%s", b.Update)
	b.next(time.Time{}, "it goes on by itself; `monopod history -n %s %s` shows how it went", b.Object.Namespace, b.Object.Name)
}

// lastSeen adds that a healthy pod cannot be observed any longer.
func (b *builder) lastSeen() {
	if b.Runtime == "" || b.chain.Reason != "" {
		return
	}
	b.cause(cause.RuntimeDown, "", "it was fine when it was seen last; now containers cannot be seen: %s", oneLine(b.Runtime))
	b.next(time.Time{}, "it is looked at as soon as that is over; what runs goes on")
	b.runtimeAdvice()
}

// remembered adds what the disk has about the pod while no daemon runs.
func (b *builder) remembered() {
	b.cause(cause.DaemonDown, "", "%s, so nobody knows how the pod is now", b.silence())
	if len(b.Events) > 0 {
		b.add(Step{Kind: Events, Text: "what was written down of it last", Lines: b.Events})
	}
	for _, name := range slices.Sorted(maps.Keys(b.Output)) {
		b.add(Step{Kind: Output, Container: name, Text: "the last lines of container " + name, Lines: b.Output[name]})
	}
}

// quiet explains a pod without a problem of the agent.
func (b *builder) quiet() {
	switch {
	case b.Trouble.Text != "":
		b.cause(cause.Other, "", "%s", b.Trouble.Text)
		b.retried("it is tried again")
	case b.Object.Status.Phase == corev1.PodUnknown:
		b.cause(cause.RuntimeDown, "", "%s", cmp.Or(oneLine(b.Runtime), "it has not been looked at yet"))
		b.next(time.Time{}, "it is looked at as soon as that is over; what runs goes on")
		b.runtimeAdvice()
	case b.Object.Status.Phase == corev1.PodSucceeded:
		b.next(time.Time{}, "it has ended with success; it does not start again")
	case !b.ready():
		b.gates()
	case b.LogsDropped != "":
		b.cause(cause.LogsDropped, "", "it runs, but %s", b.LogsDropped)
		b.next(time.Time{}, "as soon as its log file can be written again it is, and tells how much is missing")
		b.act("make room on the disk (df -h shows where), or give logs less: containerLogMaxSize, podLogsMaxSize")
	case b.NotMirrored != "":
		b.cause(cause.NotMirrored, "", "it runs, but the API server does not show it as it is: %s", b.NotMirrored)
		b.next(time.Time{}, "it is tried again after 1 s to 1 min; nothing here waits for it")
		b.act("change what that API server refuses there, or the manifest; see monopod events")
	default:
		b.restarted()
	}
}

// gates is about a pod that only its readiness gates keep from being ready.
func (b *builder) gates() {
	if c := b.condition(corev1.PodReady); c != nil && c.Reason == "ReadinessGatesNotReady" {
		b.cause(cause.Gate, "", "its containers are ready, but spec.readinessGates wants conditions that a controller of a cluster sets, and there is none here")
		b.act("remove readinessGates from %s", b.place())
		return
	}
	b.cause(cause.Underway, "", "it is about to become ready")
	b.next(time.Time{}, "nothing is to be done")
}

// restarted adds a container that runs, but has only just been restarted.
func (b *builder) restarted() {
	all := b.statuses()
	for i := range all {
		st := &all[i]
		last := st.LastTerminationState.Terminated
		if st.State.Running == nil || last == nil || last.ExitCode == 0 || b.EndedBy[st.Name] != "" || b.Now.Sub(st.State.Running.StartedAt.Time) > settled {
			continue
		}
		b.cause(cause.Restarted, st.Name, "container %s has only been running for %s again", st.Name, short(b.Now.Sub(st.State.Running.StartedAt.Time)))
		explainExit(b, st.Name)
		return
	}
}

func (b *builder) blind() {
	b.cause(cause.RuntimeDown, "", "containerd cannot be asked: %s", oneLine(b.Trouble.Message))
	b.add(Step{Kind: Next, Text: "it is asked again and again; what runs goes on meanwhile", At: b.NextTry})
	b.runtimeAdvice()
}

// runtimeStep is what to do about a containerd that does not answer.
func (f Facts) runtimeStep() Step {
	if f.Places.Endpoint != "" {
		return Step{Kind: Action, Text: fmt.Sprintf("look whether containerd runs and answers on %s (systemctl status containerd)", f.Places.Endpoint)}
	}
	return Step{Kind: Action, Text: "look into " + f.Instance.log() + " and whether the disk is full (df -h)"}
}

func (b *builder) runtimeAdvice() { b.add(b.runtimeStep()) }

// placeOfPod names where another pod is written.
func (b *builder) placeOfPod(key string) string {
	for i := range b.Pods {
		if b.Pods[i].key() == key && b.Pods[i].Where != "" {
			return ", which is written in " + b.Pods[i].Where
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
		b.cause(cause.InitContainer, "", "its containers wait for the init container %s", c)
	}
}

// anyRegular reports whether a container other than an init container has been started.
func (b *builder) anyRegular() bool {
	return slices.ContainsFunc(b.Object.Status.ContainerStatuses, func(st corev1.ContainerStatus) bool {
		return st.State.Running != nil || st.State.Terminated != nil || st.LastTerminationState.Terminated != nil
	})
}

// edit adds that a newer version of its file was refused.
func (b *builder) edit() {
	for i := range b.Inputs {
		in := &b.Inputs[i]
		if in.State != model.InputRefused || !slices.Contains(in.Pods, b.key()) {
			continue
		}
		b.cause(cause.InputRefused, "", "%s was edited%s and refused, so the pod goes on by what it said before", in.Input, b.ago(in.Since))
		b.chain.Steps[len(b.chain.Steps)-1].Lines = in.Errors
		b.next(time.Time{}, "the file is read again as soon as it is saved")
		b.act("correct what the lines above name; `monopod validate %s` says whether it is right", in.Input)
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
