package change

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/node"
	"monopod/node/localclient"
)

// A rollback before the wait started does not fail it; a rollback during the wait does.
func TestWaitHearsOfARollbackThatComesMeanwhile(t *testing.T) {
	const back, other = "revision 1 runs instead of 2 until the manifest changes: why", "revision 2 runs instead of 3 until the manifest changes: by hand"
	pod := func(revision, rollback string, ready corev1.ConditionStatus) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: map[string]string{}}}
		p.Annotations[node.AnnotationRevision], p.Annotations[node.AnnotationRollback] = revision, rollback
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		return p
	}
	const no, yes = corev1.ConditionFalse, corev1.ConditionTrue
	for name, c := range map[string]struct {
		goal goal
		pods []corev1.Pod
		want string
	}{
		"back and Ready":              {conditionGoal("Ready"), []corev1.Pod{pod("2", "", no), pod("1", back, yes)}, "pod default/web was rolled back: " + back},
		"back and not Ready":          {conditionGoal("Ready"), []corev1.Pod{pod("2", "", no), pod("1", back, no)}, "pod default/web was rolled back: " + back},
		"another one":                 {phaseGoal("Running"), []corev1.Pod{pod("1", back, no), pod("2", other, no)}, "pod default/web was rolled back: " + other},
		"since before":                {conditionGoal("Ready"), []corev1.Pod{pod("1", back, no), pod("1", back, yes)}, errMet.Error()},
		"since before the daemon's":   {conditionGoal("Ready"), []corev1.Pod{pod("", "", no), pod("1", back, yes)}, errMet.Error()},
		"forward again":               {conditionGoal("Ready"), []corev1.Pod{pod("1", back, no), pod("2", "", yes)}, errMet.Error()},
		"what is no hope to be fine":  {conditionGoal("Ready=False"), []corev1.Pod{pod("2", "", yes), pod("1", back, no)}, errMet.Error()},
		"it only has to go some time": {goneGoal(), []corev1.Pod{pod("2", "", yes), pod("1", back, no)}, "<nil>"},
	} {
		key := manifests.Key{Namespace: "default", Name: "web"}
		w := newWaiting(awaited{goals: map[manifests.Key]goal{key: c.goal}})
		var err error
		for _, p := range c.pods {
			if err = w.see(localclient.PodEvent{Type: "MODIFIED", Object: p}); err != nil {
				break
			}
		}
		if fmt.Sprint(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}
