package why

import (
	"fmt"
	"strings"
	"time"

	"monopod/internal/cause"
	"monopod/internal/model"
)

// step is about a step that failed and is repeated.
func (b *builder) step() {
	b.waiting()
	switch c := b.Trouble.Cause; {
	case c.Image != "", isImage(c.Kind):
		b.image()
	case c.Kind == cause.ProfileUnusable:
		b.profile()
	case b.missing(), b.mount(), b.network(), b.create():
	case c.Kind == cause.Hook:
		b.cause(cause.Hook, c.Container, "the postStart hook of container %s failed: %s", c.Container, oneLine(c.Detail))
		b.retried("the container is started again")
		b.act("correct %s.lifecycle.postStart in %s", b.field(c.Container), b.place())
	default:
		kind, who := cause.Start, "the pod"
		if c.Kind == cause.Config {
			kind = c.Kind
		}
		if c.Container != "" {
			who = "container " + c.Container
		}
		b.cause(kind, c.Container, "%s cannot be made (%s): %s", who, b.Trouble.Reason, oneLine(c.Detail))
		b.retried("it is tried again")
		b.act("correct %s in %s, or what it needs of this machine", b.field(c.Container), b.place())
	}
}

// profile is about a profile of this machine that a container cannot have.
func (b *builder) profile() {
	c := b.Trouble.Cause
	p := c.Object
	what := map[string]string{cause.Seccomp: "seccomp profile", cause.AppArmor: "AppArmor profile"}[p.Kind]
	if c.Fault == cause.NotFound {
		b.cause(c.Kind, c.Container, "container %s asks for the %s %s, which this machine does not have", c.Container, what, p.Name)
	} else {
		b.cause(c.Kind, c.Container, "container %s asks for the %s %s, which cannot be used: %s", c.Container, what, p.Name, oneLine(c.Detail))
	}
	b.retried("it is tried again")
	switch {
	case p.Kind == cause.AppArmor:
		b.act("load it: apparmor_parser --replace FILE (/sys/kernel/security/apparmor/profiles lists those that are loaded)")
	case c.Fault == cause.NotFound:
		b.act("put the file there, or correct localhostProfile in %s", b.place())
	default:
		b.act("correct that file, or localhostProfile in %s", b.place())
	}
	b.act("or use type: RuntimeDefault in %s.securityContext of %s", b.field(c.Container), b.place())
}

// create is about a container that could not be made or started, and reports whether the cause is one of those.
func (b *builder) create() bool {
	c, who := b.Trouble.Cause, "the pod"
	if c.Container != "" {
		who = "container " + c.Container
	}
	switch c.Kind {
	case cause.CommandNotFound:
		action := b.commandNotFound(c.Container, c)
		b.act("%s", action)
		b.retried("it is tried again")
	case cause.NonRoot:
		b.cause(c.Kind, c.Container, "%s must not run as root (runAsNonRoot), but would: %s", who, oneLine(c.Detail))
		b.retried("it is tried again")
		b.act("set %s.securityContext.runAsUser to a number such as 65532 in %s, or take an image with a numeric user", b.field(c.Container), b.place())
	case cause.NoSpace:
		b.cause(c.Kind, c.Container, "the disk is full: %s", oneLine(c.Detail))
		b.retried("it is tried again")
		b.act("make room on the disk (df -h shows where)")
	default:
		return false
	}
	return true
}

// commandNotFound names the command, and returns what to do.
func (b *builder) commandNotFound(container string, c cause.Cause) string {
	image, where := "its image", b.field(container)+".args"
	if spec := b.spec(container); spec != nil {
		image = "the image " + spec.Image
		if len(spec.Command) > 0 {
			where = b.field(container) + ".command"
		}
	}
	why := "does not exist in " + image
	if c.Fault == cause.NotExecutable {
		why = "may not be executed in " + image
	}
	b.cause(cause.CommandNotFound, container, "container %s cannot be started: the program %q %s", container, c.Program, why)
	return fmt.Sprintf("correct %s in %s: write the path of a program that the image has, or leave command out to run the image's own", where, b.place())
}

// network is about CNI and host ports, and reports whether the cause is one of those.
func (b *builder) network() bool {
	c := b.Trouble.Cause
	text, config := oneLine(c.Detail), inFile(b.Places.Config)
	advice := ""
	switch c.Kind {
	case cause.PodCIDR:
		b.cause(c.Kind, "", "the pods' network cannot be made: %s", text)
		advice = "set podCIDR" + config + " to a subnet that nothing on this machine uses, such as 10.213.0.0/16, and restart monopod"
	case cause.CNIPlugin:
		b.cause(c.Kind, "", "the pods' network cannot be made: %s", text)
		advice = "install the plugin (apt install containernetworking-plugins), or name its directory in cniBinDirs" + config
	case cause.Network:
		b.cause(c.Kind, "", "the pod's network cannot be set up: %s", text)
		advice = "correct what the message names; with hostNetwork: true the pod needs no network of its own"
	case cause.HostPortPod, cause.HostPortProcess: // a pod of another monopod, or a process of this machine
		b.cause(c.Kind, "", "%s", text)
		advice = "give the pod another hostPort in " + b.place() + ", or stop what holds the port"
	default:
		return false
	}
	b.retried("it is tried again")
	b.act("%s", advice)
	return true
}

// mount is about a volume that cannot be mounted, and reports whether the cause is one of those.
func (b *builder) mount() bool {
	switch c := b.Trouble.Cause; c.Kind {
	case cause.HostPath:
		b.cause(c.Kind, c.Container, "the hostPath %s of this machine is not %s", c.Path, c.Expected)
		b.retried("it is tried again")
		b.act("make it on this machine, correct the path, or write type: DirectoryOrCreate (or FileOrCreate) in %s", b.place())
	case cause.Mount:
		b.cause(c.Kind, c.Container, "a volume cannot be had: %s", oneLine(c.Detail))
		b.retried("it is tried again")
		b.act("correct spec.volumes in %s, or what it needs of this machine", b.place())
	default:
		return false
	}
	return true
}

// probe is about a probe that fails or has not succeeded.
func (b *builder) probe() {
	t := b.Trouble
	kind := strings.ToLower(t.Reason)
	target, field := "", ""
	if c := b.spec(t.Container); c != nil {
		target, field = probeTarget(c, t.Reason)
	}
	p := b.probeOf(t.Container, t.Reason)
	output, fault := strings.TrimSpace(t.Message), t.Cause.Fault
	if p != nil && p.Output != "" {
		output, fault = strings.TrimSpace(p.Output), p.Fault
	}
	text := "the " + kind + " probe of container " + t.Container + target
	switch {
	case output != "":
		b.cause(cause.ProbeFailed, t.Container, "%s fails%s: %s", text, failureCount(p), oneLine(output))
	case t.Cause.Kind == cause.ProbeFailed:
		b.cause(cause.ProbeFailed, t.Container, "%s has failed", text)
	default:
		b.cause(cause.ProbePending, t.Container, "%s has not succeeded yet", text)
	}
	if fault == cause.Refused {
		b.served(t.Container)
	}
	b.probeNext(p)
	b.act("%s", b.probeAdvice(b.field(t.Container)+"."+field, output == "", fault))
}

// served says what the programs of the pod listen on instead of the port that a probe asks.
func (b *builder) served(container string) {
	var ports, local []string
	for _, l := range b.Listeners {
		if l.Pod != "" && l.Pod != b.key() || l.Protocol != "TCP" {
			continue
		}
		if strings.HasPrefix(l.IP, "127.") || l.IP == "::1" {
			local = append(local, l.port())
			continue
		}
		ports = append(ports, l.port())
	}
	switch {
	case len(ports) > 0:
		b.cause(cause.ProbeFailed, container, "nothing listens there: the programs of the pod listen on %s", strings.Join(ports, ", "))
	case len(local) > 0:
		b.cause(cause.ProbeFailed, container, "nothing listens there: the programs of the pod listen on %s only, where nobody outside of the pod can ask", strings.Join(local, ", "))
	default:
		b.cause(cause.ProbeFailed, container, "nothing listens there now")
	}
}

func (b *builder) probeNext(p *model.Probe) {
	consequence := "the pod is not ready until it succeeds"
	switch b.Trouble.Reason {
	case "Liveness":
		consequence = "the container is restarted"
	case "Startup":
		consequence = "the container counts as started when it succeeds, and is restarted when it has failed too often"
	}
	if b.Trouble.Stopping {
		b.next(time.Time{}, "the container is being stopped, and started again after that")
		return
	}
	if p != nil && !p.Next.IsZero() {
		b.next(p.Next, "it is asked again %s; %s", b.in(p.Next), consequence)
		return
	}
	b.next(time.Time{}, "%s", consequence)
}

// probeAdvice is what to do about a probe that fails, or has not succeeded and says nothing.
func (b *builder) probeAdvice(field string, silent bool, fault cause.Fault) string {
	place := " in " + b.place()
	switch {
	case fault == cause.Refused:
		return "correct " + field + ".port" + place + " to a port that the program serves, have it listen on all addresses, or give it more time (initialDelaySeconds)"
	case fault == cause.NotFound:
		return "the program does not know that path: correct " + field + ".path" + place
	case fault == cause.TimedOut:
		return "raise timeoutSeconds of the probe" + place + ", or find out why the program answers slowly"
	case fault == cause.NoProgram:
		return "the command of the probe does not exist in the image, or what it asks for does not: correct " + field + place
	case silent:
		return "give it time; if it does not come, compare " + field + place + " with what the program serves"
	}
	return "see what the program says (monopod logs -n " + b.Object.Namespace + " " + b.Object.Name + " -c " + b.Trouble.Container + "), or correct " + field + place
}

func (b *builder) probeOf(container, kind string) *model.Probe {
	for i := range b.Probes {
		if p := &b.Probes[i]; p.Container == container && p.Kind == kind {
			return p
		}
	}
	return nil
}
