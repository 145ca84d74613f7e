package why

import (
	"cmp"
	"regexp"
	"strings"
	"time"
)

// step is about a step that failed and is repeated.
func (b *builder) step() {
	b.waiting()
	switch t := b.Trouble; {
	case t.Profile.Kind != "":
		b.profile()
	case isImage(t.Reason):
		b.image()
	case b.missing(), b.path():
	case t.Reason == "HostPortConflict":
		b.portOfOthers()
	case t.Reason == "CreatePodSandboxError" || strings.Contains(t.Message, "set up network"):
		b.network()
	case t.Reason == "PostStartHookError":
		b.cause(Hook, t.Container, "the postStart hook of container %s failed: %s", t.Container, oneLine(t.Message))
		b.retried("the container is started again")
		b.act("correct %s.lifecycle.postStart in %s", b.field(t.Container), b.place())
	default:
		b.create()
	}
}

// profile is about a profile of this machine that a container cannot have.
func (b *builder) profile() {
	p := b.Trouble.Profile
	what := map[string]string{"seccomp": "seccomp profile", "apparmor": "AppArmor profile"}[p.Kind]
	if p.Missing {
		b.cause(ProfileUnusable, p.Container, "container %s asks for the %s %s, which this machine does not have", p.Container, what, p.Name)
	} else {
		b.cause(ProfileUnusable, p.Container, "container %s asks for the %s %s, which cannot be used: %s", p.Container, what, p.Name, stripSteps(oneLine(b.Trouble.Message)))
	}
	b.retried("it is tried again")
	switch {
	case p.Kind == "apparmor":
		b.act("load it: apparmor_parser --replace FILE (/sys/kernel/security/apparmor/profiles lists those that are loaded)")
	case p.Missing:
		b.act("put the file there, or correct localhostProfile in %s", b.place())
	default:
		b.act("correct that file, or localhostProfile in %s", b.place())
	}
	b.act("or use type: RuntimeDefault in %s.securityContext of %s", b.field(p.Container), b.place())
}

// create is about a container that could not be made or started.
func (b *builder) create() {
	t, text := b.Trouble, oneLine(b.Trouble.Message)
	who := "the pod"
	if t.Container != "" {
		who = "container " + t.Container
	}
	switch {
	case notFound.MatchString(text):
		b.commandNotFound(t.Container, text)
		b.retried("it is tried again")
	case strings.Contains(text, "non-root") || strings.Contains(text, "runAsNonRoot"):
		b.cause(NonRoot, t.Container, "%s must not run as root (runAsNonRoot), but would: %s", who, stripSteps(text))
		b.retried("it is tried again")
		b.act("set %s.securityContext.runAsUser to a number such as 65532 in %s, or take an image with a numeric user", b.field(t.Container), b.place())
	case strings.Contains(text, "no space left on device"):
		b.noSpace(text)
	default:
		reason := Start
		if t.Reason == "CreateContainerConfigError" || t.Reason == "AppArmor" {
			reason = Config
		}
		b.cause(reason, t.Container, "%s cannot be made (%s): %s", who, t.Reason, stripSteps(text))
		b.retried("it is tried again")
		b.act("correct %s in %s, or what it needs of this machine", b.field(t.Container), b.place())
	}
}

// notFound is how runc and the kernel say that a program does not exist.
var notFound = regexp.MustCompile(`exec: "([^"]*)": (?:executable file not found|stat [^:]*: no such file|permission denied|is a directory)|exec (\S+): no such file`)

// commandNotFound names the command.
func (b *builder) commandNotFound(container, text string) {
	m := notFound.FindStringSubmatch(text)
	program := cmp.Or(m[1], m[2])
	image, where := "its image", b.field(container)+".args"
	if c := b.spec(container); c != nil {
		image = "the image " + c.Image
		if len(c.Command) > 0 {
			where = b.field(container) + ".command"
		}
	}
	why := "does not exist in " + image
	if strings.Contains(text, "permission denied") {
		why = "may not be executed in " + image
	}
	b.cause(CommandNotFound, container, "container %s cannot be started: the program %q %s", container, program, why)
	b.act("correct %s in %s: write the path of a program that the image has, or leave command out to run the image's own", where, b.place())
}

func (b *builder) noSpace(text string) {
	b.cause(NoSpace, b.Trouble.Container, "the disk is full: %s", stripSteps(text))
	b.retried("it is tried again")
	b.act("make room on the disk (df -h shows where)")
}

// stripSteps takes away what the agent was doing from the front of an error: only what went wrong is of interest.
func stripSteps(text string) string {
	for _, step := range []string{"get image: ", "check pod: ", "create container: ", "create sandbox: ", "start container: ", "set up network: ", "sync volumes: ", "set up sandbox again: ", "create task: "} {
		text = strings.TrimPrefix(text, step)
	}
	return text
}

// network is about CNI.
func (b *builder) network() {
	text := stripSteps(oneLine(b.Trouble.Message))
	config := inFile(b.Places.Config)
	switch {
	case strings.Contains(text, "podCIDR"):
		b.cause(PodCIDR, "", "the pods' network cannot be made: %s", text)
		b.retried("it is tried again")
		b.act("set podCIDR%s to a subnet that nothing on this machine uses, such as 10.213.0.0/16, and restart monopod", config)
	case strings.Contains(text, "CNI plugin") && strings.Contains(text, "missing"):
		b.cause(CNIPlugin, "", "the pods' network cannot be made: %s", text)
		b.retried("it is tried again")
		b.act("install the plugin (apt install containernetworking-plugins), or name its directory in cniBinDirs%s", config)
	default:
		b.cause(Network, "", "the pod's network cannot be set up: %s", text)
		b.retried("it is tried again")
		b.act("correct what the message names; with hostNetwork: true the pod needs no network of its own")
	}
}

// portOfOthers is about a host port that a pod of another monopod, or a process of this machine, has.
func (b *builder) portOfOthers() {
	reason, text := HostPortProcess, stripSteps(oneLine(b.Trouble.Message))
	if strings.Contains(text, "taken by pod ") {
		reason = HostPortPod
	}
	b.cause(reason, "", "%s", text)
	b.retried("it is tried again")
	b.act("give the pod another hostPort in %s, or stop what holds the port", b.place())
}

// path is about a hostPath that is not as the manifest says. It says whether that is so.
func (b *builder) path() bool {
	text := oneLine(b.Trouble.Message)
	m := hostPath.FindStringSubmatch(text)
	switch {
	case m != nil:
		b.cause(HostPath, b.Trouble.Container, "the hostPath %s of this machine is not %s", m[1], m[2])
		b.retried("it is tried again")
		b.act("make it on this machine, correct the path, or write type: DirectoryOrCreate (or FileOrCreate) in %s", b.place())
		return true
	case b.Trouble.Reason == "FailedMount":
		b.cause(Mount, b.Trouble.Container, "a volume cannot be had: %s", stripSteps(text))
		b.retried("it is tried again")
		b.act("correct spec.volumes in %s, or what it needs of this machine", b.place())
		return true
	}
	return false
}

var hostPath = regexp.MustCompile(`hostPath type check failed: (\S+) is not ([^;:]+)`)

// probe is about a probe that fails or has not succeeded.
func (b *builder) probe() {
	t := b.Trouble
	kind := strings.ToLower(t.Reason)
	target, field := "", ""
	if c := b.spec(t.Container); c != nil {
		target, field = probeTarget(c, t.Reason)
	}
	p := b.probeOf(t.Container, t.Reason)
	output := strings.TrimSpace(t.Message)
	if p != nil && p.Output != "" {
		output = strings.TrimSpace(p.Output)
	}
	text := "the " + kind + " probe of container " + t.Container + target
	if output == "" {
		reason, verb := ProbePending, " has not succeeded yet"
		if strings.Contains(t.Text, "failed") {
			reason, verb = ProbeFailed, " has failed"
		}
		b.cause(reason, t.Container, "%s%s", text, verb)
	} else {
		b.cause(ProbeFailed, t.Container, "%s fails%s: %s", text, p.count(), oneLine(output))
	}
	if strings.Contains(output, "connection refused") {
		b.served(t.Container)
	}
	b.probeNext(p)
	b.act("%s", b.probeAdvice(b.field(t.Container)+"."+field, oneLine(output)))
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
		b.cause(ProbeFailed, container, "nothing listens there: the programs of the pod listen on %s", strings.Join(ports, ", "))
	case len(local) > 0:
		b.cause(ProbeFailed, container, "nothing listens there: the programs of the pod listen on %s only, where nobody outside of the pod can ask", strings.Join(local, ", "))
	default:
		b.cause(ProbeFailed, container, "nothing listens there now")
	}
}

func (b *builder) probeNext(p *Probe) {
	consequence := "the pod is not ready until it succeeds"
	switch b.Trouble.Reason {
	case "Liveness":
		consequence = "the container is restarted"
	case "Startup":
		consequence = "the container counts as started when it succeeds, and is restarted when it has failed too often"
	}
	if strings.Contains(b.Trouble.Text, "being stopped") {
		b.next(time.Time{}, "the container is being stopped, and started again after that")
		return
	}
	if p != nil && !p.Next.IsZero() {
		b.next(p.Next, "it is asked again %s; %s", b.in(p.Next), consequence)
		return
	}
	b.next(time.Time{}, "%s", consequence)
}

// probeAdvice is what to do about an answer.
func (b *builder) probeAdvice(field, output string) string {
	place := " in " + b.place()
	switch {
	case strings.Contains(output, "connection refused"):
		return "correct " + field + ".port" + place + " to a port that the program serves, have it listen on all addresses, or give it more time (initialDelaySeconds)"
	case strings.Contains(output, "statuscode: 404"), strings.Contains(output, "status code: 404"):
		return "the program does not know that path: correct " + field + ".path" + place
	case strings.Contains(output, "deadline exceeded"), strings.Contains(output, "timeout"), strings.Contains(output, "timed out"):
		return "raise timeoutSeconds of the probe" + place + ", or find out why the program answers slowly"
	case strings.Contains(output, "no such file"), strings.Contains(output, "not found"):
		return "the command of the probe does not exist in the image, or what it asks for does not: correct " + field + place
	case output == "":
		return "give it time; if it does not come, compare " + field + place + " with what the program serves"
	}
	return "see what the program says (monopod logs -n " + b.Object.Namespace + " " + b.Object.Name + " -c " + b.Trouble.Container + "), or correct " + field + place
}

func (b *builder) probeOf(container, kind string) *Probe {
	for i := range b.Probes {
		if p := &b.Probes[i]; p.Container == container && p.Kind == kind {
			return p
		}
	}
	return nil
}
