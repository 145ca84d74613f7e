package why

import (
	"cmp"
	"fmt"

	"monopod/internal/cause"
)

// failedStep explains a step of the pod that failed and is retried.
type failedStep struct{ *builder }

func (s *failedStep) explain() {
	s.waiting()
	switch c := s.Trouble.Cause; {
	case c.Image != "", isImage(c.Kind):
		explainImage(s.builder)
	case c.Kind == cause.ProfileUnusable:
		s.profile()
	case (&missingObject{s.builder}).explain(), s.mount(), s.network(), s.create():
	case c.Kind == cause.Sandbox:
		s.sandbox()
	case c.Kind == cause.Hook:
		s.cause(cause.Hook, c.Container, "the postStart hook of container %s failed: %s", c.Container, oneLine(c.Detail))
		s.retried("restart")
		s.act("correct %s.lifecycle.postStart in %s", s.field(c.Container), s.place())
	default:
		kind, who := cmp.Or(c.Kind, cause.Start), "the pod"
		if c.Container != "" {
			who = "container " + c.Container
		}
		s.cause(kind, c.Container, "%s cannot be created (%s): %s", who, s.Trouble.Reason, oneLine(c.Detail))
		s.retried("retry")
		s.act("correct %s in %s, or provide what it requires on this machine", s.field(c.Container), s.place())
	}
}

// profile is about a profile of this machine that a container cannot have.
func (s *failedStep) profile() {
	c := s.Trouble.Cause
	p := c.Object
	what := map[string]string{cause.Seccomp: "seccomp profile", cause.AppArmor: "AppArmor profile"}[p.Kind]
	if c.Fault == cause.NotFound {
		s.cause(c.Kind, c.Container, "container %s uses %s %s, which does not exist on this machine", c.Container, what, p.Name)
	} else {
		s.cause(c.Kind, c.Container, "container %s uses %s %s, which cannot be used: %s", c.Container, what, p.Name, oneLine(c.Detail))
	}
	s.retried("retry")
	switch {
	case p.Kind == cause.AppArmor:
		s.act("load it: apparmor_parser --replace FILE (loaded profiles: /sys/kernel/security/apparmor/profiles)")
	case c.Fault == cause.NotFound:
		s.act("create the file, or correct localhostProfile in %s", s.place())
	default:
		s.act("correct that file, or localhostProfile in %s", s.place())
	}
	s.act("or use type: RuntimeDefault in %s.securityContext of %s", s.field(c.Container), s.place())
}

// create is about a container that could not be made or started, and reports whether the cause is one of those.
func (s *failedStep) create() bool {
	c, who := s.Trouble.Cause, "the pod"
	if c.Container != "" {
		who = "container " + c.Container
	}
	switch c.Kind {
	case cause.CommandNotFound:
		action := s.commandNotFound(c.Container, c)
		s.act("%s", action)
		s.retried("retry")
	case cause.NonRoot:
		s.cause(c.Kind, c.Container, "%s must not run as root (runAsNonRoot), but would: %s", who, oneLine(c.Detail))
		s.retried("retry")
		s.act("set %s.securityContext.runAsUser to a number such as 65532 in %s, or use an image with a numeric user", s.field(c.Container), s.place())
	case cause.NoSpace:
		s.cause(c.Kind, c.Container, "the disk is full: %s", oneLine(c.Detail))
		s.retried("retry")
		s.act("free disk space (see df -h)")
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
		why = "is not executable in " + image
	}
	b.cause(cause.CommandNotFound, container, "container %s cannot be started: the program %q %s", container, c.Program, why)
	return fmt.Sprintf("correct %s in %s: set the path of a program in the image, or omit command to run the default of the image", where, b.place())
}

// network is about CNI and host ports, and reports whether the cause is one of those.
func (s *failedStep) network() bool {
	c := s.Trouble.Cause
	text, config, advice := oneLine(c.Detail), inFile(s.Places.Config), ""
	switch c.Kind {
	case cause.PodCIDR:
		s.cause(c.Kind, "", "the pod network cannot be created: %s", text)
		advice = "set podCIDR" + config + " to a subnet that nothing on this machine uses, such as 10.213.0.0/16, and restart monopod"
	case cause.CNIPlugin:
		s.cause(c.Kind, "", "the pod network cannot be created: %s", text)
		advice = "install the plugin (apt install containernetworking-plugins), or add its directory to cniBinDirs" + config
	case cause.Network:
		s.cause(c.Kind, "", "the pod network cannot be set up: %s", text)
		if c.Fault == cause.BridgeName {
			advice = "set bridgeName" + config + " to a name that no other interface of this machine has, and restart monopod"
			break
		}
		advice = "fix the cause in the message; with hostNetwork: true, the pod needs no network of its own"
	case cause.HostPortPod, cause.HostPortProcess: // a pod of another monopod, or a process of this machine
		s.cause(c.Kind, "", "%s", text)
		advice = "give the pod another hostPort in " + s.place() + ", or stop the process that uses the port"
	default:
		return false
	}
	s.retried("retry")
	s.act("%s", advice)
	return true
}

// sandbox is about what the containers of the pod share, apart from their network.
func (s *failedStep) sandbox() {
	c := s.Trouble.Cause
	s.cause(c.Kind, "", "the sandbox of the pod cannot be created: %s", oneLine(c.Detail))
	s.retried("retry")
	switch c.Fault {
	case cause.UserNamespace:
		s.act("provide what the message names on this machine; without hostUsers: false in %s, the users of the pod are those of this machine", s.place())
	case cause.Handler:
		s.act("correct spec.runtimeClassName in %s, or the RuntimeClass and its runtime on this machine", s.place())
	case cause.Sysctl:
		s.act("correct spec.securityContext.sysctls in %s", s.place())
	default:
		s.act("correct what the message names in %s, or on this machine", s.place())
	}
}

// mount is about a volume that cannot be mounted, and reports whether the cause is one of those.
func (s *failedStep) mount() bool {
	switch c := s.Trouble.Cause; c.Kind {
	case cause.HostPath:
		s.cause(c.Kind, c.Container, "hostPath %s on this machine is not %s", c.Path, c.Expected)
		s.retried("retry")
		s.act("create it on this machine, correct the path, or set type: DirectoryOrCreate (or FileOrCreate) in %s", s.place())
	case cause.Mount:
		s.cause(c.Kind, c.Container, "a volume cannot be mounted: %s", oneLine(c.Detail))
		s.retried("retry")
		room := map[cause.Fault]string{cause.NoRoom: "set objectFilesMemory" + inFile(s.Places.Config) + " to more and restart monopod, or remove other pods"}
		s.act("%s", cmp.Or(room[c.Fault], "correct spec.volumes in "+s.place()+", or provide what it requires on this machine"))
	default:
		return false
	}
	return true
}
