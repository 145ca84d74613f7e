package apply

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner/plan/fit"
)

// Replaced returns warnings that name the running pods and containers that monopod replaces once the checked objects are stored. Pods of
// workloads are not among them: clients expect those to be replaced.
func Replaced(a *Applier, c *Checked) (warnings []string) {
	if !slices.ContainsFunc(c.objects, func(p *pushed) bool { return p.Pod != nil }) {
		return nil
	}
	now := a.view()
	for _, p := range c.objects {
		was := now.document(p.ID)
		shown, exists := now.shown(p.ID)
		if p.Pod == nil || was == nil || !exists || !now.visible {
			continue
		}
		if text := replaced(was, p.Pod, shown.Pod); text != "" {
			warnings = append(warnings, text)
		}
	}
	return warnings
}

// replaced returns what an edit of a pod replaces; empty if nothing that runs.
func replaced(was, now *manifests.Pod, shown *corev1.Pod) string {
	runs := map[string]bool{}
	for _, s := range slices.Concat(shown.Status.InitContainerStatuses, shown.Status.ContainerStatuses) {
		if s.State.Running != nil {
			runs[s.Name] = true
		}
	}
	whole, containers := fit.Replaced(was, now)
	containers = slices.DeleteFunc(containers, func(name string) bool { return !runs[name] })
	switch {
	case whole && len(runs) > 0:
		return fmt.Sprintf("pod %s is recreated, with empty emptyDirs: what has changed cannot be changed while it runs", now.Key())
	case len(containers) == 1:
		return fmt.Sprintf("container %s of pod %s is restarted", containers[0], now.Key())
	case len(containers) > 1:
		return fmt.Sprintf("containers %s of pod %s are restarted", strings.Join(containers, ", "), now.Key())
	}
	return ""
}
