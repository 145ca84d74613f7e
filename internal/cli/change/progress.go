package change

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// show reports the pods that have not reached their goals.
func (w *waiting) show() {
	if w.progress == nil {
		return
	}
	lines := map[string]bool{}
	for key, g := range w.left {
		name := "pod " + key.String()
		lines[name] = true
		text := "waiting for " + g.what + ": " + w.state(key)
		if pod := w.pods[key]; g.gone && pod != nil {
			text += graceText(pod)
		}
		w.progress.Set(name, text)
	}
	w.progress.Keep("pod ", lines)
}

// graceText announces how long the containers of a pod may take to end.
func graceText(pod *corev1.Pod) string {
	grace := pod.DeletionGracePeriodSeconds
	if grace == nil {
		grace = pod.Spec.TerminationGracePeriodSeconds
	}
	if grace == nil || *grace == 0 {
		return ""
	}
	return fmt.Sprintf(", with a grace period of %ds", *grace)
}
