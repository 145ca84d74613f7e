package why

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/printer"
	"monopod/node/why/clue"
)

// lastEnd is how the last instance of a container ended; nil when none has.
func lastEnd(st *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case st == nil:
		return nil
	case st.State.Terminated != nil:
		return st.State.Terminated
	}
	return st.LastTerminationState.Terminated
}

// exit explains how the last instance of a container ended.
type exit struct {
	*builder
	name string
	end  *corev1.ContainerStateTerminated
	// field is the path of the container in the manifest.
	field string
}

// explainExit explains why a container has ended.
func explainExit(b *builder, name string) {
	e := &exit{builder: b, name: name, end: lastEnd(b.status(name)), field: b.field(name)}
	if e.end == nil {
		b.cause(cause.Exited, name, "%s", b.Trouble.Text)
		return
	}
	e.explain()
}

func (e *exit) explain() {
	name, end := e.name, e.end
	e.ending()
	action := e.deeper()
	if lines := e.Output[name]; len(lines) > 0 && end.Reason != "StartError" {
		e.add(Step{Kind: Output, Container: name, Text: "last lines of container " + name, Lines: lines})
	} else if end.Message != "" && end.Reason != "StartError" {
		e.add(Step{Kind: Output, Container: name, Text: "termination message of container " + name, Lines: printer.TextLines(end.Message)})
	}
	if st := e.status(name); len(e.Events) > 0 && (e.StoppedFor[name] != "" || st.State.Running != nil) {
		e.add(Step{Kind: Events, Text: "latest events of the pod", Lines: e.Events})
	}
	e.restartNext()
	e.act("%s", action)
}

// ending adds how a container ended.
func (e *exit) ending() {
	name, end := e.name, e.end
	ago := e.ago(end.FinishedAt.Time)
	again := ""
	if st := e.status(name); st.RestartCount > 0 {
		again = "; restarted " + times(int(st.RestartCount))
	}
	switch sig, isSignal := clue.Signal(end.ExitCode); {
	case end.Reason == "OOMKilled":
		e.cause(cause.OutOfMemory, name, "container %s was killed%s because it ran out of memory (exit code %d, OOMKilled)%s", name, ago, end.ExitCode, again)
	case end.Reason == "StartError":
		e.cause(cause.Start, name, "container %s could not be started%s (exit code %d, StartError)%s", name, ago, end.ExitCode, again)
	case e.StoppedFor[name] != "":
		e.stopped(ago, again)
	case isSignal:
		e.cause(cause.Signaled, name, "container %s was killed%s by %s (exit code %d)%s", name, ago, sig, end.ExitCode, again)
	case end.ExitCode == 0:
		e.cause(cause.Exited, name, "container %s exited%s with exit code 0, but should keep running%s", name, ago, again)
	default:
		e.cause(cause.Exited, name, "container %s exited%s with exit code %d%s%s", name, ago, end.ExitCode, clue.ExitHint(end.ExitCode), again)
	}
}

// stopped is about a container that the agent has ended for a fault of its own.
func (e *exit) stopped(ago, again string) {
	reason, why := cause.ProbeFailed, "its liveness probe failed"
	switch e.StoppedFor[e.name] {
	case "StartupProbe":
		why = "its startup probe did not succeed in time"
	case "PostStartHookError":
		reason, why = cause.Hook, "its postStart hook failed"
	}
	e.cause(reason, e.name, "container %s was stopped%s by monopod because %s (exit code %d)%s", e.name, ago, why, e.end.ExitCode, again)
}

// stoppedAdvice is what to do about a container that the agent has ended for a fault of its own: its command and arguments do run.
func (e *exit) stoppedAdvice(logs string) string {
	kind := "Liveness"
	switch e.StoppedFor[e.name] {
	case "PostStartHookError":
		return fmt.Sprintf("correct %s.lifecycle.postStart in %s; output of the program: %s", e.field, e.place(), logs)
	case "StartupProbe":
		kind = "Startup"
	}
	target, field := clue.ProbeTarget(e.spec(e.name), kind)
	return fmt.Sprintf("make the program answer its probe%s in time (output: %s), or correct %s.%s in %s", target, logs, e.field, field, e.place())
}

// deeper adds the cause behind the exit of a container, as far as it is known, and returns what to do.
func (e *exit) deeper() string {
	name, end, field := e.name, e.end, e.field
	logs := fmt.Sprintf("monopod logs -n %s %s -c %s", e.Object.Namespace, e.Object.Name, name)
	if e.status(name).State.Terminated == nil {
		logs += " --previous"
	}
	switch {
	case end.Reason == "OOMKilled":
		return e.memory()
	case end.Reason == "StartError" && e.Refused[name].Kind == cause.CommandNotFound:
		return e.commandNotFound(name, e.Refused[name])
	case end.Reason == "StartError":
		e.cause(cause.Start, name, "%s", oneLine(end.Message))
		return "correct " + field + " in " + e.place() + ", or provide what it requires on this machine"
	}
	if port, ok := clue.PortTaken(e.Output[name]); ok {
		return e.portTaken(port)
	}
	if l := e.rival(); l != nil && end.ExitCode != 0 {
		e.cause(cause.HostPortProcess, name, "possible cause: the pod's port %s is in use on this machine by %s", l.port(), l)
		return fmt.Sprintf("stop %s, or change the port of the pod in %s", l, e.place())
	}
	if e.StoppedFor[name] != "" {
		return e.stoppedAdvice(logs)
	}
	if end.ExitCode == 0 {
		return fmt.Sprintf("keep the program of %s running, or set restartPolicy: OnFailure or Never in %s", field, e.place())
	}
	if len(e.Output[name]) == 0 && end.Message == "" {
		return fmt.Sprintf("it has no output: check %s.command and args in %s, and what the program requires", field, e.place())
	}
	return fmt.Sprintf("fix the error in its output (full log: %s), in %s or in the image", logs, e.place())
}

// rival is a process of others that has a port which the pod names, on the host's network; nil: there is none.
func (e *exit) rival() *Listener {
	for i := range e.Listeners {
		if l := &e.Listeners[i]; e.Object.Spec.HostNetwork && l.Pod != e.key() {
			return l
		}
	}
	return nil
}

// memory is about a container that ran out of it.
func (e *exit) memory() string {
	name, field := e.name, e.field
	if c := e.spec(name); c != nil && !c.Resources.Limits.Memory().IsZero() {
		e.cause(cause.OutOfMemory, name, "its memory limit is %s (%s.resources.limits.memory)", c.Resources.Limits.Memory(), field)
		return fmt.Sprintf("raise %s.resources.limits.memory in %s, or reduce the memory usage of the program", field, e.place())
	}
	if r := e.Object.Spec.Resources; r != nil && !r.Limits.Memory().IsZero() {
		e.cause(cause.OutOfMemory, name, "the memory limit of the pod is %s (spec.resources.limits.memory)", r.Limits.Memory())
		return "raise spec.resources.limits.memory in " + e.place() + ", or reduce the memory usage of the program"
	}
	e.cause(cause.OutOfMemory, name, "it has no memory limit: this machine ran out of memory")
	return "free memory on this machine, or set a memory limit for the container that uses it"
}

// restartNext says when a container starts again.
func (e *exit) restartNext() {
	st := e.status(e.name)
	switch {
	case st != nil && st.State.Running != nil:
		e.next(time.Time{}, "nothing, as long as it keeps running")
	case st != nil && st.State.Terminated != nil && e.Trouble.Final:
		e.next(time.Time{}, "it is not restarted (restartPolicy %s) until %s is edited", e.Object.Spec.RestartPolicy, e.place())
	case e.NextTry.IsZero():
		e.next(time.Time{}, "it is restarted immediately")
	default:
		e.next(e.NextTry, "restart %s; the delay doubles with each failure, up to 5 minutes", e.in(e.NextTry))
	}
}

// portTaken is about a program that could not have its port.
func (e *exit) portTaken(port int) string {
	name := e.name
	if !e.Object.Spec.HostNetwork {
		e.cause(cause.HostPortProcess, name, "its output reports an address in use: another process in the pod uses%s", numbered(port))
		return "change the port of one of the pod's programs in " + e.place()
	}
	for _, l := range e.Listeners {
		if port == 0 || l.Port == port {
			e.cause(cause.HostPortProcess, name, "its output reports an address in use: port %s of this machine is used by %s", l.port(), l)
			if l.Pod != "" {
				return fmt.Sprintf("change the port of pod %s or of this one%s", l.Pod, e.placeOfPod(l.Pod))
			}
			return fmt.Sprintf("stop %s, or change the port of the program in %s", l, e.place())
		}
	}
	e.cause(cause.HostPortProcess, name, "its output reports an address in use: the pod is on the host's network, and%s is or was in use on this machine", numbered(port))
	return "change the port of the program in " + e.place() + " (ss -ltnp lists the ports in use)"
}

func numbered(port int) string {
	if port == 0 {
		return " the port"
	}
	return fmt.Sprintf(" port %d", port)
}
