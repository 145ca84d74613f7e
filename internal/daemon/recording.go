package daemon

import (
	"context"
	"maps"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/internal/printer"
	"monopod/internal/version"
	"monopod/manifests"
	"monopod/node/events"
	"monopod/watcher/applied"
	"monopod/watcher/fetch"
)

// Reasons of events that a kubelet has none for.
const (
	eventStarting         = "Starting" // also a kubelet's
	eventStopping         = "Stopping"
	eventRuntimeLost      = "ContainerdUnreachable"
	eventRuntimeFound     = "ContainerdReachable"
	eventAppliedLost      = "AppliedChangeLost"
	eventInputPrefix      = "Input" // Refused, Unreachable, Conflict; Accepted, Gone after one of these
	eventInputGone        = eventInputPrefix + "Gone"
	maxPodsOfInput        = 20 // whose own events tell what is wrong with their file
	startingText          = "Starting monopod "
	containerdFoundText   = "containerd answers again"
	containerdStartedText = "the containerd inside monopod runs now"
)

// record runs the recorder until the function that it returns is called: after all that has something to tell has ended.
func (a *App) record(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var g errgroup.Group
	g.Go(func() error { return a.events.Run(ctx) })
	a.tell(corev1.EventTypeNormal, eventStarting, startingText+version.String())
	return func() {
		a.tell(corev1.EventTypeNormal, eventStopping, a.stopping("Stopping monopod"))
		cancel()
		if err := g.Wait(); err != nil {
			a.Log.Error("record events", "err", err)
		}
	}
}

// stopping is what is said at the end, of the pods too.
func (a *App) stopping(what string) string {
	if a.Removing {
		return what
	}
	return what + "; the pods keep running"
}

// tell records something about this machine.
func (a *App) tell(eventType, reason, message string) {
	a.events.Event(events.NodeRef(a.cfg.NodeName), eventType, reason, message)
}

// appliedLost reports a change by apply that could not be finished.
func (a *App) appliedLost(err *applied.DamagedError) {
	a.Log.Error(err.Error())
	a.tell(corev1.EventTypeWarning, eventAppliedLost, err.Error())
}

// containerd records that containerd does not answer, and why, or with nil that it does again.
func (a *App) containerd(err error) {
	switch {
	case err != nil:
		a.tell(corev1.EventTypeWarning, eventRuntimeLost, "containers cannot be seen or changed: "+err.Error())
	case a.cfg.ContainerRuntimeEndpoint == "":
		a.tell(corev1.EventTypeNormal, eventRuntimeFound, containerdStartedText)
	default:
		a.tell(corev1.EventTypeNormal, eventRuntimeFound, containerdFoundText)
	}
}

// publish hands over what is desired, and records what has become of its inputs.
func (a *App) publish(d model.Desired) {
	a.inputs = recordInputs(a.events, a.inputs, d.Inputs)
	a.tidy(d)
	a.Board.Publish(d)
	a.memory.Touch()
}

// tidy removes the copies of sources that are no more, once, when their pods may go.
func (a *App) tidy(d model.Desired) {
	if a.tidied || !d.Complete() {
		return
	}
	a.tidied = true
	if err := fetch.RemoveCopies(a.cfg.CopiesDirectory(), d.Order); err != nil {
		a.Log.Warn("remove the copies of sources that are no more", "err", err)
	}
}

// eventRecorder is runner.Recorder.
type eventRecorder interface {
	Event(object corev1.ObjectReference, eventType, reason, message string)
}

// troubled says that an input is not as somebody meant it.
func troubled(r model.Input) bool {
	return r.State != model.InputAccepted && r.State != model.InputIgnored
}

// inputKey names an input.
type inputKey struct{ source, input string }

// recordInputs records which inputs are in trouble now, of other kinds than before, and which are not any more. It
// returns those that are.
func recordInputs(to eventRecorder, before map[inputKey]model.Input, now []model.Input) map[inputKey]model.Input {
	trouble := map[inputKey]model.Input{}
	gone := maps.Clone(before) // hardly ever more than a few, of thousands of inputs
	for _, r := range now {
		key := inputKey{r.Source, r.Input}
		was, had := before[key]
		if had {
			delete(gone, key)
		}
		switch {
		case !troubled(r):
			if had {
				recordInput(to, r, corev1.EventTypeNormal, was.Pods)
			}
			continue
		case !had || was.State != r.State || strings.Join(was.Errors, "\n") != strings.Join(r.Errors, "\n"):
			recordInput(to, r, corev1.EventTypeWarning, r.Pods)
		}
		trouble[key] = r
	}
	for _, was := range gone {
		to.Event(events.InputRef(was.Input), corev1.EventTypeNormal, eventInputGone, "It is gone")
	}
	return trouble
}

// recordInput records the state of an input, also about the pods that come from it: they stay as they were.
func recordInput(to eventRecorder, r model.Input, eventType string, pods []string) {
	reason, message := eventInputPrefix+string(r.State), strings.Join(r.Errors, "\n")
	if eventType == corev1.EventTypeNormal {
		message = "It is " + strings.ToLower(string(r.State)) + " again"
	}
	to.Event(events.InputRef(r.Input), eventType, reason, message)
	message = printer.About(r.Input, message)
	for _, name := range pods[:min(len(pods), maxPodsOfInput)] {
		namespace, name, _ := strings.Cut(name, "/")
		to.Event(podRef(manifests.Key{Namespace: namespace, Name: name}), eventType, reason, message)
	}
}

func podRef(key manifests.Key) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: key.Namespace, Name: key.Name}
}
