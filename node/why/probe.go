package why

import (
	"strings"
	"time"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/node/why/clue"
)

// failedProbe explains a probe that fails or has not succeeded yet.
type failedProbe struct {
	*builder
	// probe is its state; nil: not yet known.
	probe *model.Probe
}

func (p *failedProbe) explain() {
	t := p.Trouble
	kind := strings.ToLower(t.Reason)
	target, field := clue.ProbeTarget(p.spec(t.Container), t.Reason)
	p.probe = p.probeOf(t.Container, t.Reason)
	output, fault := strings.TrimSpace(t.Message), t.Cause.Fault
	if p.probe != nil && p.probe.Output != "" {
		output, fault = strings.TrimSpace(p.probe.Output), p.probe.Fault
	}
	text := "the " + kind + " probe of container " + t.Container + target
	switch {
	case output != "":
		p.cause(cause.ProbeFailed, t.Container, "%s fails%s: %s", text, failureCount(p.probe), oneLine(output))
	case t.Cause.Kind == cause.ProbeFailed:
		p.cause(cause.ProbeFailed, t.Container, "%s has failed", text)
	default:
		p.cause(cause.ProbePending, t.Container, "%s has not succeeded yet", text)
	}
	if fault == cause.Refused {
		p.served(t.Container)
	}
	p.probeNext()
	p.act("%s", p.probeAdvice(p.field(t.Container)+"."+field, output == "", fault))
}

// served adds what the programs of the pod listen on instead of the port of the probe.
func (p *failedProbe) served(container string) {
	var ports, local []string
	for _, l := range p.Listeners {
		if l.Pod != "" && l.Pod != p.key() || l.Protocol != "TCP" {
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
		p.cause(cause.ProbeFailed, container, "nothing listens there: the programs of the pod listen on %s", strings.Join(ports, ", "))
	case len(local) > 0:
		p.cause(cause.ProbeFailed, container, "nothing listens there: the programs of the pod listen on %s only, which is not reachable from outside the pod", strings.Join(local, ", "))
	default:
		p.cause(cause.ProbeFailed, container, "nothing listens there now")
	}
}

func (p *failedProbe) probeNext() {
	consequence := "the pod is not ready until it succeeds"
	switch p.Trouble.Reason {
	case "Liveness":
		consequence = "the container is restarted"
	case "Startup":
		consequence = "the container counts as started once it succeeds, and is restarted after too many failures"
	}
	if p.Trouble.Stopping {
		p.next(time.Time{}, "the container is being stopped, and then restarted")
		return
	}
	if p.probe != nil && !p.probe.Next.IsZero() {
		p.next(p.probe.Next, "next probe %s; %s", p.in(p.probe.Next), consequence)
		return
	}
	p.next(time.Time{}, "%s", consequence)
}

// probeAdvice is what to do about a probe that fails, or has not succeeded and says nothing.
func (p *failedProbe) probeAdvice(field string, silent bool, fault cause.Fault) string {
	place := " in " + p.place()
	switch {
	case fault == cause.Refused:
		return "set " + field + ".port" + place + " to a port that the program serves, make the program listen on all addresses, or allow more time (initialDelaySeconds)"
	case fault == cause.NotFound:
		return "the program does not serve that path: correct " + field + ".path" + place
	case fault == cause.TimedOut:
		return "raise timeoutSeconds of the probe" + place + ", or find out why the program is slow"
	case fault == cause.NoProgram:
		return "the command of the probe, or a file that it uses, does not exist in the image: correct " + field + place
	case silent:
		return "wait; if it does not succeed, compare " + field + place + " with what the program serves"
	}
	return "check the output of the program (monopod logs -n " + p.Object.Namespace + " " + p.Object.Name + " -c " + p.Trouble.Container + "), or correct " + field + place
}

func (p *failedProbe) probeOf(container, kind string) *model.Probe {
	for i := range p.Probes {
		if p := &p.Probes[i]; p.Container == container && p.Kind == kind {
			return p
		}
	}
	return nil
}
