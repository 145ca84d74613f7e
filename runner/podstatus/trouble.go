package podstatus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/plan/retry"
	"monopod/runner/probe"
)

// troublesBuilder finds the first problem.
type troublesBuilder struct{ *statusBuilder }

func troublesOf(s *statusBuilder) troublesBuilder { return troublesBuilder{s} }

func (s troublesBuilder) trouble() model.Trouble {
	switch {
	case s.Blind != nil:
		return model.Trouble{Kind: model.TroubleBlind, Message: s.Blind.Error(), Text: "the runtime does not respond: " + s.Blind.Error()}
	case s.Removing:
		return model.Trouble{Kind: model.TroubleRemoving, Text: s.whyRemoving()}
	case s.Held != nil:
		t := model.Trouble{Kind: model.TroubleHeld, Reason: s.Held.Reason, Message: s.Held.Message, Cause: s.Held.Cause, Text: s.Held.Reason + ": " + s.Held.Message}
		if f := s.failure(); f != nil && s.Sandbox != nil {
			t.Text += "; before that: " + f.Reason + ": " + FailureMessage(f)
		} else if s.Sandbox != nil {
			t.Text += "; the pod continues unchanged"
		}
		return t
	case s.halted():
		return s.troubleHalted()
	}
	if f, ok := s.Failures[""]; ok {
		return s.troubleStep(f)
	}
	if f := s.failure(); f != nil {
		return model.Trouble{Kind: model.TroubleFailed, Reason: f.Reason, Message: FailureMessage(f), Cause: f.Cause, At: f.At, Text: s.whyFailedPod(f)}
	}
	if f, ok := s.Failures[plan.VolumesKey]; ok {
		return s.troubleStep(f)
	}
	if s.Prepared[""] == plan.PreparationRunning {
		return inProgress("checking the new definition before the old one is stopped")
	}
	if t := s.troubleInit(); t.Kind != model.NoTrouble {
		return t
	}
	if t := s.troubleRegular(); t.Kind != model.NoTrouble {
		return t
	}
	if t := s.troubleEphemeral(); t.Kind != model.NoTrouble {
		return t
	}
	if r := strings.Join(resourcesOf(s.statusBuilder).refusedResizes(), "; "); r != "" {
		return model.Trouble{Kind: model.TroubleResize, Reason: runner.ReasonResizeError, Message: r, Text: "resources are not resized yet: " + r}
	}
	if s.Kept {
		return model.Trouble{Kind: model.TroubleKept, Text: "its manifest has not been read since the agent started; the pod continues unchanged"}
	}
	return model.Trouble{}
}

// troubleRegular returns the problem of the first container that is broken, else of the first one that is not ready yet.
func (s troublesBuilder) troubleRegular() model.Trouble {
	var slow model.Trouble
	for i := range s.pod.Spec.Containers {
		spec := &s.pod.Spec.Containers[i]
		t := s.troubleContainer(spec, shownInstance(s.Containers, spec.Name))
		if t.Kind == model.NoTrouble {
			continue
		}
		t.Text = fmt.Sprintf("container %s: %s", t.Container, t.Text)
		if t.Kind == model.TroubleStep || t.Kind == model.TroubleExited || t.Cause.Kind == cause.ProbeFailed {
			return t
		}
		if slow.Kind == model.NoTrouble {
			slow = t
		}
	}
	return slow
}

// more returns the problems of the other containers, besides the first one of the pod. None of them waits for another, except for init
// containers.
func (s troublesBuilder) more(first model.Trouble) []model.Trouble {
	isFirst := func(c corev1.Container) bool { return c.Name == first.Container && !manifests.IsSidecar(&c) }
	if first.Container == "" || first.Kind == model.TroubleInProgress || slices.ContainsFunc(s.pod.Spec.InitContainers, isFirst) {
		return nil
	}
	var all []model.Trouble
	add := func(kind string, spec *corev1.Container, c *runner.Container) {
		t := s.troubleContainer(spec, c)
		if t.Kind == model.NoTrouble || t.Kind == model.TroubleInProgress || spec.Name == first.Container {
			return
		}
		t.Text = fmt.Sprintf("%s %s: %s", kind, t.Container, t.Text)
		all = append(all, t)
	}
	for i := range s.pod.Spec.InitContainers {
		if spec := &s.pod.Spec.InitContainers[i]; manifests.IsSidecar(spec) {
			add("init container", spec, containersOf(s.statusBuilder).initInstance(spec.Name))
		}
	}
	for i := range s.pod.Spec.Containers {
		spec := &s.pod.Spec.Containers[i]
		add("container", spec, shownInstance(s.Containers, spec.Name))
	}
	return all
}

func inProgress(text string) model.Trouble {
	return model.Trouble{Kind: model.TroubleInProgress, Text: text, Cause: cause.Cause{Kind: cause.InProgress, Detail: text}}
}

func (s troublesBuilder) whyRemoving() string {
	var names []string
	for i := range s.all {
		if s.all[i].State == runner.ContainerRunning {
			names = append(names, s.all[i].Name)
		}
	}
	if len(names) == 0 {
		return "being removed"
	}
	slices.Sort(names)
	return "being removed: waiting for " + strings.Join(names, ", ") + " to stop"
}

// whyFailedPod describes a pod that has failed as a whole.
func (s troublesBuilder) whyFailedPod(f *runner.PodFailure) string {
	why := f.Reason + ": " + FailureMessage(f)
	if plan.ReturnsAfter(f.Reason, &s.pod.Spec, s.manifest().Origin) {
		why += " It is recreated at " + plan.EvictionOver(s.Sandbox, s.Options).Format(time.RFC3339) + "."
	}
	return why
}

// troubleStep describes a failed step that concerns the whole pod.
func (s troublesBuilder) troubleStep(f plan.Failure) model.Trouble {
	t := stepTrouble(f, "")
	if slices.ContainsFunc(s.Containers, func(c runner.Container) bool { return c.State == runner.ContainerRunning }) {
		t.Text += "; running containers continue"
	}
	return t
}

func stepTrouble(f plan.Failure, container string) model.Trouble {
	return model.Trouble{
		Kind: model.TroubleStep, Container: container, Reason: f.Reason, Message: f.Message, Count: f.Count, At: f.At, Cause: f.Cause,
		Text: f.Reason + ": " + f.Message,
	}
}

// troubleInit returns the problem of the first incomplete init container.
func (s troublesBuilder) troubleInit() model.Trouble {
	for i := range s.pod.Spec.InitContainers {
		spec := &s.pod.Spec.InitContainers[i]
		if !manifests.IsSidecar(spec) && plan.InitPassed(&s.pod.Spec, &s.PodState, s.round, spec.Name) {
			continue
		}
		if s.pod.Status.Phase == corev1.PodSucceeded || s.pod.Status.Phase == corev1.PodFailed && containersOf(s.statusBuilder).failedInit(spec) == nil {
			continue
		}
		c := containersOf(s.statusBuilder).initInstance(spec.Name)
		t := s.troubleContainer(spec, c)
		if t.Kind == model.NoTrouble && c != nil && c.State == runner.ContainerRunning && !manifests.IsSidecar(spec) {
			t = inProgress("running before the others")
			t.Container = spec.Name
		}
		if t.Kind != model.NoTrouble {
			t.Text = fmt.Sprintf("init container %s: %s", spec.Name, t.Text)
			return t
		}
	}
	return model.Trouble{}
}

// troubleContainer returns the problem of a container, by the instance that counts, if any; none if it is as desired.
func (s troublesBuilder) troubleContainer(spec *corev1.Container, c *runner.Container) model.Trouble {
	if f, ok := s.Failures[spec.Name]; ok {
		t := stepTrouble(f, spec.Name)
		if c != nil && c.State == runner.ContainerRunning && f.Reason != runner.ReasonPostStartHookError {
			t.Text += "; the old one continues"
		}
		return t
	}
	t := model.Trouble{Kind: model.TroubleInProgress, Container: spec.Name}
	switch {
	case s.Prepared[spec.Name] == plan.PreparationRunning:
		t.Text = "pulling image " + spec.Image
	case c == nil:
		t.Text = "being created"
	case c.State == runner.ContainerCreated:
		t.Text = "about to start"
	case c.State == runner.ContainerRunning && c.PostStart == runner.PostStartPending:
		t.Text = "its postStart hook is running"
	case c.State == runner.ContainerRunning:
		return s.troubleProbe(spec, c)
	case c.Exit == nil:
		return model.Trouble{}
	default:
		return s.troubleExited(spec, c)
	}
	t.Cause = cause.Cause{Kind: cause.InProgress, Container: spec.Name, Detail: t.Text}
	return t
}

func (s troublesBuilder) troubleExited(spec *corev1.Container, c *runner.Container) model.Trouble {
	r := s.restart(c)
	t := model.Trouble{Kind: model.TroubleExited, Container: spec.Name, Reason: c.Exit.Reason, At: c.Exit.FinishedAt, Cause: c.Exit.Cause, Final: !r.Wanted}
	t.Text = fmt.Sprintf("exited with %d (%s)", c.Exit.ExitCode, c.Exit.Reason)
	switch {
	case !r.Wanted && c.Exit.ExitCode == 0:
		return model.Trouble{}
	case !r.Wanted:
		t.Text += ", not restarted by restart policy " + string(retry.Policy(&s.pod.Spec, c))
	default:
		t.Text += ", to be restarted at " + r.At.Format(time.RFC3339)
	}
	return t
}

// troubleProbe returns the problem that the probes of a running container report.
func (s troublesBuilder) troubleProbe(spec *corev1.Container, c *runner.Container) model.Trouble {
	failed := func(kind probe.Kind) model.Trouble {
		return model.Trouble{
			Kind: model.TroubleProbe, Container: spec.Name, Reason: string(kind), Stopping: true, Cause: cause.Cause{Kind: cause.ProbeFailed, Container: spec.Name},
			Text: fmt.Sprintf("Unhealthy: %s probe failed; it is being stopped", kind),
		}
	}
	pending := func(kind probe.Kind, text string) model.Trouble {
		return model.Trouble{Kind: model.TroubleProbe, Container: spec.Name, Reason: string(kind), Text: text, Cause: cause.Cause{Kind: cause.ProbePending, Container: spec.Name}}
	}
	switch h, ok := s.Probes[c.ID]; {
	case ok && h.Failed != nil:
		t := failed(h.Failed.Kind)
		t.Message, t.Text, t.Cause.Fault = h.Failed.Output, plan.Unhealthy(h.Failed)+"; it is being stopped", h.Failed.Fault
		return t
	case c.Leaving() && c.StopCause == runner.StopLivenessProbe:
		return failed(probe.Liveness)
	case c.Leaving() && c.StopCause == runner.StopStartupProbe:
		return failed(probe.Startup)
	case !s.Started(spec, c):
		return pending(probe.Startup, "its startup probe has not succeeded yet")
	case !s.Ready(spec, c):
		return pending(probe.Readiness, "its readiness probe has not succeeded")
	}
	return model.Trouble{}
}
