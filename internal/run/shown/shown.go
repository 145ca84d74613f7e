// Package shown words what commands wait for: pods of a run, pulls of a daemon, removals. It must not decide how long anything is waited for.
// It has no goroutines.
package shown

import (
	"cmp"
	"context"
	"fmt"

	"monopod/internal/progress"
	"monopod/internal/trial"
	"monopod/internal/units"
	"monopod/node"
	"monopod/node/localclient"
)

// Waiting shows the pods that a run waits for.
func Waiting(to *progress.Reporter, r *trial.Report) {
	lines := map[string]bool{}
	for i := range r.Pods {
		if p := &r.Pods[i]; p.Result == trial.Waiting {
			name := "pod " + p.Key().String()
			lines[name] = true
			to.Set(name, cmp.Or(p.Reason, "waiting"))
		}
	}
	to.Keep("pod ", lines)
}

// Pulls shows the pulls of a daemon.
func Pulls(ctx context.Context, to *progress.Reporter, c *localclient.Client) {
	list, err := c.Images(ctx)
	if err != nil {
		return
	}
	lines := map[string]bool{}
	for _, pull := range list.Pulls {
		name := "image " + pull.Image
		lines[name] = true
		to.Set(name, "pulling: "+units.Progress(pull.Done, pull.Total))
	}
	to.Keep("image ", lines)
}

// Removal announces how long the removal of pods may take.
func Removal(to *progress.Reporter, pods []node.PodView) {
	lines := map[string]bool{}
	for _, v := range pods {
		name := "pod " + v.Pod.Namespace + "/" + v.Pod.Name
		lines[name] = true
		text := "removing"
		if grace := v.Pod.Spec.TerminationGracePeriodSeconds; grace != nil && *grace > 0 {
			text = fmt.Sprintf("removing, with a grace period of up to %ds (--grace shortens it)", *grace)
		}
		to.Set(name, text)
	}
	to.Keep("pod ", lines)
}
