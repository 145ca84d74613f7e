package why

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/internal/cause"
)

// writer writes the steps of a chain.
type writer struct {
	chain Chain
	clock time.Time // the present
}

// builder explains one pod. Types that embed it explain one kind of trouble each.
type builder struct {
	Facts
	Pod
	writer
}

func newBuilder(f Facts, p Pod, c Chain) *builder {
	return &builder{Facts: f, Pod: p, writer: writer{chain: c, clock: f.Now}}
}

func (w *writer) add(s Step) { w.chain.Steps = append(w.chain.Steps, s) }

func (w *writer) cause(r cause.Kind, container, format string, args ...any) {
	w.chain.Reason = r
	w.add(Step{Kind: Cause, Reason: r, Container: container, Text: fmt.Sprintf(format, args...)})
}

func (w *writer) act(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if strings.Contains(text, appliedManifest) {
		text += "; then re-apply it"
	}
	w.add(Step{Kind: Action, Text: text})
}

// next adds what happens automatically. A zero time means at once, or at an event that the text names.
func (w *writer) next(at time.Time, format string, args ...any) {
	w.add(Step{Kind: Next, At: at, Text: fmt.Sprintf(format, args...)})
}

// in words a time to come.
func (w *writer) in(at time.Time) string {
	if d := at.Sub(w.clock); d > 0 {
		return "in " + short(d)
	}
	return "now"
}

// short is a duration as people say it.
func short(d time.Duration) string {
	if d < time.Second {
		return "1s"
	}
	return duration.HumanDuration(d)
}

// ago words a time past; empty when it is not known.
func (w *writer) ago(at time.Time) string {
	if at.IsZero() || at.After(w.clock) {
		return ""
	}
	return " " + short(w.clock.Sub(at)) + " ago"
}

// retried says when a failed step is repeated.
func (b *builder) retried(what string) {
	if b.NextTry.IsZero() {
		b.next(time.Time{}, "%s as soon as something changes", what)
		return
	}
	b.next(b.NextTry, "%s %s%s", what, b.in(b.NextTry), b.repeated())
}

// repeated returns the number of failed attempts as text.
func (b *builder) repeated() string {
	if n := b.Trouble.Count; n > 1 {
		return fmt.Sprintf("; failed %d times in a row", n)
	}
	return ""
}

// times returns a count as text.
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// key is namespace/name of the pod.
func (p *Pod) key() string { return p.Object.Namespace + "/" + p.Object.Name }

// field is the path of a container in the manifest, such as spec.containers[1].
func (p *Pod) field(container string) string {
	for i := range p.Object.Spec.Containers {
		if p.Object.Spec.Containers[i].Name == container {
			return fmt.Sprintf("spec.containers[%d]", i)
		}
	}
	for i := range p.Object.Spec.InitContainers {
		if p.Object.Spec.InitContainers[i].Name == container {
			return fmt.Sprintf("spec.initContainers[%d]", i)
		}
	}
	return "spec"
}

// file is where the manifest is, without the line.
func (p *Pod) file() string {
	if i := strings.LastIndexByte(p.Where, ':'); i > 0 {
		if _, err := strconv.Atoi(p.Where[i+1:]); err == nil {
			return p.Where[:i]
		}
	}
	return p.Where
}

// appliedManifest is where to edit a pod that was applied.
const appliedManifest = "the applied manifest"

// place names where to edit.
func (b *builder) place() string {
	if isApplied(b.Places, b.Where) {
		return appliedManifest
	}
	return b.Pod.place()
}

func isApplied(p Places, where string) bool {
	return p.Applied != "" && strings.HasPrefix(where, p.Applied+"/")
}

func (p *Pod) place() string {
	if p.Where == "" {
		return "the manifest"
	}
	return p.Where
}

func (p *Pod) spec(container string) *corev1.Container {
	for _, list := range [][]corev1.Container{p.Object.Spec.Containers, p.Object.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}

// isInit reports whether a container is an init container, for which others wait.
func (p *Pod) isInit(container string) bool {
	return slices.ContainsFunc(p.Object.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == container })
}

func (p *Pod) status(container string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Object.Status.ContainerStatuses, p.Object.Status.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}

// statuses are those of all containers in the order in which they start.
func (p *Pod) statuses() []corev1.ContainerStatus {
	return slices.Concat(p.Object.Status.InitContainerStatuses, p.Object.Status.ContainerStatuses)
}

// condition returns a condition; nil when the pod does not have it.
func (p *Pod) condition(kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Object.Status.Conditions {
		if p.Object.Status.Conditions[i].Type == kind {
			return &p.Object.Status.Conditions[i]
		}
	}
	return nil
}

// String names the process, as in "nginx (pid 42)".
func (l Listener) String() string {
	who := fmt.Sprintf("%s (pid %d)", l.Name, l.PID)
	switch {
	case l.PID == 0:
		who = "a process that monopod cannot see"
	case l.Name == "":
		who = fmt.Sprintf("process %d", l.PID)
	}
	if l.Pod != "" {
		who += fmt.Sprintf(" of container %s of pod %s", l.Container, l.Pod)
	}
	return who
}

// port is what it listens on, as in 80/TCP.
func (l Listener) port() string {
	if l.IP == "" {
		return fmt.Sprintf("%d/%s", l.Port, l.Protocol)
	}
	return net.JoinHostPort(l.IP, strconv.Itoa(l.Port)) + "/" + l.Protocol
}
