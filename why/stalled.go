package why

import (
	"time"
)

const (
	// slow is how long an action takes on no healthy machine.
	slow = 10 * time.Second
	// givenUpAfter is when the agent ends an action that does not return; see runner.
	givenUpAfter = 2 * time.Minute
)

// slowest is the action that has been under way for longest, if that is too long; nil: none is.
func (b *builder) slowest() *Doing {
	for i := range b.Doing {
		if d := &b.Doing[i]; b.Now.Sub(d.Since) >= slow {
			return d
		}
	}
	return nil
}

// stalled is about an action that does not come to an end: a runtime or a network plug-in hangs.
func (b *builder) stalled(d *Doing) {
	what, since := "the pod", short(b.Now.Sub(d.Since))
	if d.Container != "" {
		what = "container " + d.Container
	}
	noNetwork := len(b.Object.Status.PodIPs) == 0 && !b.Object.Spec.HostNetwork
	switch d.Kind {
	case "SetupNetwork":
		b.cause(Stalled, d.Container, "the network of the pod has been in the making for %s (%s): this takes less than a second on a healthy machine", since, d.Kind)
	case "CreateSandbox", "ReviveSandbox", "CreateContainer", "StartContainer":
		if noNetwork { // an address is known only when both are done
			b.cause(Stalled, d.Container, "%s has been waiting for %s for the container runtime or for the network of the pod (%s): this takes less than a second on a healthy machine", what, since, d.Kind)
			break
		}
		b.cause(Stalled, d.Container, "the container runtime has been starting %s for %s (%s): this takes less than a second on a healthy machine", what, since, d.Kind)
	default:
		b.cause(Stalled, d.Container, "the container runtime has been at work on %s for %s (%s): this takes less than a second on a healthy machine", what, since, d.Kind)
	}
	at := d.Since.Add(givenUpAfter)
	b.next(at, "it is given up %s and tried again; other pods do not wait for it", b.in(at))
	b.act("look for the process that hangs: ps -eo pid,ppid,stat,etime,args | grep -E 'runc|shim|cni' (D in STAT: it waits for a disk or a file system)")
}

// endedByOthers is about a container that is about to start again after it was ended though nothing was wrong with it.
func (b *builder) endedByOthers(name string) {
	if b.EndedBy[name] == "Reboot" {
		b.cause(Underway, name, "container %s ended when the machine was restarted", name)
	} else {
		b.cause(Underway, name, "monopod had stopped container %s, as for an edit or a drain; nothing is wrong with it", name)
	}
	b.retried("it is started again")
}
