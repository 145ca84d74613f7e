package why

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/internal/units"
)

// Phases of actions, spelled as those of runner.
const (
	phaseNetwork = "set up network"
	phaseVolumes = "prepare volumes"
)

const (
	// noticeable is how long an action must have been under way to be named.
	noticeable = time.Second
	// slow is how long an action takes on no healthy machine.
	slow = 10 * time.Second
	// givenUpAfter is when the agent ends an action that does not return; see runner.
	givenUpAfter = 2 * time.Minute
)

// operation explains what the agent is carrying out for the pod.
type operation struct{ *builder }

// longest returns an operation that takes at least that long: a phase, which is what the actions wait for, else the oldest; nil: there is
// none.
func (o *operation) longest(atLeast time.Duration) *model.Doing {
	var oldest *model.Doing
	for i := range o.Doing {
		switch d := &o.Doing[i]; {
		case o.Now.Sub(d.Since) < atLeast:
		case d.Phase != "":
			return d
		case oldest == nil:
			oldest = d
		}
	}
	return oldest
}

// what describes the operation.
func doingText(d *model.Doing) string {
	who := "the pod"
	if d.Container != "" {
		who = "container " + d.Container
	}
	switch {
	case d.Phase == phaseNetwork || d.Kind == "SetupNetwork":
		return "the network of the pod is being set up"
	case d.Phase == phaseVolumes:
		return fmt.Sprintf("the volumes of %s are being prepared", who)
	}
	switch d.Kind {
	case "CreateSandbox", "ReviveSandbox", "CreateContainer", "StartContainer":
		return "the container runtime is starting " + who
	case "StopContainer", "KillContainer":
		return "the container runtime is stopping " + who
	}
	return "the container runtime is processing " + who
}

// stalled is about an action that does not come to an end: a runtime, a network plug-in or a file server hangs.
func (o *operation) stalled(d *model.Doing) {
	o.cause(cause.Stalled, d.Container, "%s, started %s ago (%s); this takes less than a second on a healthy machine", doingText(d), short(o.Now.Sub(d.Since)), d.Kind)
	at := d.Since.Add(givenUpAfter)
	o.next(at, "it is aborted %s and retried; other pods are not affected", o.in(at))
	if d.Phase == phaseVolumes {
		o.act("find the process that hangs: ps -eo pid,ppid,stat,etime,args | grep -E 'mount|iscsiadm' (STAT D: waits for a disk or file system)")
		return
	}
	o.act("find the process that hangs: ps -eo pid,ppid,stat,etime,args | grep -E 'runc|shim|cni' (STAT D: waits for a disk or file system)")
}

// busy adds an operation that takes long, and reports whether there is one.
func (o *operation) busy() bool {
	d := o.longest(noticeable)
	if d == nil {
		return false
	}
	o.cause(cause.InProgress, d.Container, "%s, started %s ago", doingText(d), short(o.Now.Sub(d.Since)))
	o.next(time.Time{}, "this takes less than a second on a healthy machine; after %s, `monopod why` shows what to check", short(slow))
	return true
}

// endedByOthers is about a container that is about to start again after it was ended though nothing was wrong with it.
func (o *operation) endedByOthers(name string) {
	if o.EndedBy[name] == "Reboot" {
		o.cause(cause.InProgress, name, "container %s exited when the machine rebooted", name)
	} else {
		o.cause(cause.InProgress, name, "container %s was stopped by monopod, for example for an edit or a drain; the container itself has no problem", name)
	}
	o.retried("restart")
}

func (o *operation) inProgress() {
	o.waiting()
	if c := o.Trouble.Container; c != "" && o.isInit(c) && o.chain.Reason == cause.InitContainer {
		o.cause(cause.InProgress, c, "init container %s: %s%s", c, o.Trouble.Cause.Detail, o.since(c))
	} else {
		o.cause(cause.InProgress, c, "%s", o.Trouble.Text)
	}
	for _, p := range o.Pulls {
		o.cause(cause.InProgress, o.Trouble.Container, "%s: %s, started %s ago", p.Image, units.Progress(p.Done, p.Total), short(o.Now.Sub(p.Since)))
	}
	if st := o.status(o.Trouble.Container); st != nil && st.State.Waiting != nil && st.LastTerminationState.Terminated != nil && o.restartedOften(st) && o.EndedBy[st.Name] == "" {
		explainExit(o.builder, st.Name)
		return
	}
	if !o.busy() {
		o.next(time.Time{}, "no problem: it continues as soon as that is done")
	}
}

// since says for how long an init container has been running.
func (o *operation) since(container string) string {
	if st := o.status(container); st != nil && st.State.Running != nil {
		return ", started " + short(o.Now.Sub(st.State.Running.StartedAt.Time)) + " ago"
	}
	return ""
}

func (o *operation) restartedOften(st *corev1.ContainerStatus) bool {
	return st.RestartCount > 0 && (st.LastTerminationState.Terminated.ExitCode != 0 || o.StoppedFor[st.Name] != "")
}
