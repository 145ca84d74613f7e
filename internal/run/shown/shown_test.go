package shown

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/progress"
	"monopod/internal/trial"
	"monopod/node"
)

func TestPodsThatAreWaitedForAndRemovedAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := progress.Start(t.Context(), progress.Config{Out: &out, After: time.Second, Every: time.Second})
		Waiting(r, &trial.Report{Pods: []trial.Pod{
			{Namespace: "default", Name: "a", Result: trial.Waiting, Reason: "it is not Ready"}, {Namespace: "default", Name: "b", Result: trial.OK},
		}})
		time.Sleep(1500 * time.Millisecond)
		grace, pod := int64(5), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}}
		pod.Spec.TerminationGracePeriodSeconds = &grace
		Removal(r, []node.PodView{{Pod: pod}, {Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}}}})
		time.Sleep(time.Second)
		r.Stop()
		const want = "pod default/a: it is not Ready\npod default/b: removing, with a grace period of up to 5s (--grace shortens it)\npod default/c: removing\n"
		if got := out.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
