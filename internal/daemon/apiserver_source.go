package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/manifests"
	"monopod/node/apiserver"
	"monopod/node/apiserver/mirror"
	"monopod/node/why"
	"monopod/runner"
	"monopod/runner/pool"
	"monopod/watcher"
	"monopod/watcher/fetch"
)

// boundAgain is how long after an answer of the API server's source it is asked for the next one, which it gives when there is one.
const boundAgain = 500 * time.Millisecond

// boundPods returns the source of the pods that the API server binds to this node.
func (a *App) boundPods() watcher.Source {
	return fetch.NewRemote(fetch.RemoteConfig{
		Name: config.SourceAPIServer, Input: "API server, node " + a.cfg.NodeName, Place: a.cfg.Kubeconfig + "\n" + a.cfg.NodeName,
		Fetcher: bound{func() *apiserver.Agent { return a.reporter }}, Period: boundAgain,
		Load: withLeftOut(loadParts(config.SourceAPIServer, a.cfg.Policy(""))), Copy: a.cfg.CopyOf(config.SourceAPIServer), Log: a.Log,
	})
}

// bound is the reporter as a place of manifests.
type bound struct{ agent func() *apiserver.Agent }

// Fetch implements watcher.Fetcher.
func (b bound) Fetch(ctx context.Context, seen fetch.Validators) (*fetch.Answer, error) {
	body, tag, err := b.agent().Bound(ctx, seen.ETag)
	switch {
	case errors.Is(err, apiserver.ErrSame):
		return nil, fetch.ErrNotModified
	case err != nil:
		return nil, err
	}
	return &fetch.Answer{Body: body, Validators: fetch.Validators{ETag: tag}}, nil
}

// Close implements watcher.Fetcher.
func (bound) Close() {}

// withLeftOut adds what the API server's source says of pods that cannot run here.
func withLeftOut(load watcher.Loader) watcher.Loader {
	return func(input string, data []byte) (*manifests.Content, error) {
		c, err := load(input, data)
		if c != nil {
			c.Ignored = append(c.Ignored, apiserver.LeftOut(data)...)
		}
		return c, err
	}
}

// runnable says why a pod that is bound to this node cannot run here; nil: it can.
func (a *App) runnable(pod *corev1.Pod) error {
	b, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	_, err = loadParts(config.SourceAPIServer, a.cfg.Policy(""))("", b)
	var why []string
	for _, e := range manifests.Errors(err) {
		if strings.HasPrefix(e.Field, "spec.securityContext.sysctls") {
			return &apiserver.RejectedError{Reason: mirror.ReasonSysctl, Message: strings.TrimPrefix(e.Msg, mirror.ReasonSysctl+": ")}
		}
		text := e.Msg
		if e.Field != "" {
			text = e.Field + ": " + text
		}
		if e.Hint != "" {
			text += "; " + e.Hint
		}
		why = append(why, text)
	}
	if len(why) == 0 {
		return err
	}
	return errors.New(strings.Join(why, "; "))
}

// refused records that a pod that is bound to this node does not run here.
func (a *App) refused(r *apiserver.Refusal) {
	a.Log.Warn("a pod that the API server has bound to this node does not run", "pod", r.Reference().Namespace+"/"+r.Reference().Name, "reason", r.Reason, "why", r.Message)
	a.events.Event(r.Reference(), corev1.EventTypeWarning, r.Reason, r.Message)
}

// notAdmitted has a pod that the API server has bound to this node fail that is held for good: a controller replaces it then. Those of manifests
// wait.
func (a *App) notAdmitted(c pool.Change) {
	held := c.Status.NotAdmitted()
	if a.reporter == nil || c.Gone || held == nil {
		return
	}
	reason, message := held.Reason, held.Message
	if reason == runner.ReasonHostPortConflict {
		reason = mirror.ReasonNodePorts
	}
	a.reporter.Reject(c.Status.Pod, reason, message)
}

// unfit are the pods that are bound to this node and can never run here.
func (a *App) unfit() []why.Unfit {
	if a.reporter == nil {
		return nil
	}
	var all []why.Unfit
	for _, r := range a.reporter.Refusals() {
		if at := r.Reference(); r.Reason != mirror.ReasonNameTaken {
			all = append(all, why.Unfit{Namespace: at.Namespace, Name: at.Name, Text: r.Message})
		}
	}
	slices.SortFunc(all, func(x, y why.Unfit) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return all
}
