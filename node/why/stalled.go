package why

import (
	"fmt"
	"time"

	"monopod/internal/cause"
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

// longest is what has been under way for at least so long: a phase, which says what the actions wait for, else the oldest; nil: nothing is.
func (b *builder) longest(atLeast time.Duration) *Doing {
	var oldest *Doing
	for i := range b.Doing {
		switch d := &b.Doing[i]; {
		case b.Now.Sub(d.Since) < atLeast:
		case d.Phase != "":
			return d
		case oldest == nil:
			oldest = d
		}
	}
	return oldest
}

// what says what is being done.
func (d *Doing) what() string {
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
	return "the container runtime is at work on " + who
}

// stalled is about an action that does not come to an end: a runtime, a network plug-in or a file server hangs.
func (b *builder) stalled(d *Doing) {
	b.cause(cause.Stalled, d.Container, "%s, since %s (%s): this takes less than a second on a healthy machine", d.what(), short(b.Now.Sub(d.Since)), d.Kind)
	at := d.Since.Add(givenUpAfter)
	b.next(at, "it is given up %s and tried again; other pods do not wait for it", b.in(at))
	if d.Phase == phaseVolumes {
		b.act("look for the process that hangs: ps -eo pid,ppid,stat,etime,args | grep -E 'mount|iscsiadm' (D in STAT: it waits for a disk or a file system)")
		return
	}
	b.act("look for the process that hangs: ps -eo pid,ppid,stat,etime,args | grep -E 'runc|shim|cni' (D in STAT: it waits for a disk or a file system)")
}

// busy is about an action that takes its time, and says whether there is one.
func (b *builder) busy() bool {
	d := b.longest(noticeable)
	if d == nil {
		return false
	}
	b.cause(cause.Underway, d.Container, "%s, since %s", d.what(), short(b.Now.Sub(d.Since)))
	b.next(time.Time{}, "it waits for that, which takes less than a second on a healthy machine; after %s `monopod why` says what to look for", short(slow))
	return true
}

// endedByOthers is about a container that is about to start again after it was ended though nothing was wrong with it.
func (b *builder) endedByOthers(name string) {
	if b.EndedBy[name] == "Reboot" {
		b.cause(cause.Underway, name, "container %s ended when the machine was restarted", name)
	} else {
		b.cause(cause.Underway, name, "monopod had stopped container %s, as for an edit or a drain; nothing is wrong with it", name)
	}
	b.retried("it is started again")
}
