package change

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/progress"
	"monopod/manifests"
	"monopod/node/localapi"
	"monopod/node/localclient"
)

func TestADeletionAnnouncesTheGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		grace := int64(30)
		web, gone := manifests.Key{Namespace: "default", Name: "web"}, manifests.Key{Namespace: "default", Name: "gone"}
		w := newWaiting(awaited{goals: map[manifests.Key]goal{web: goneGoal(), gone: goneGoal()}})
		w.progress = progress.Start(t.Context(), progress.Config{Out: &out, After: time.Second, Every: time.Second})
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace}}
		pod.Status.Phase = corev1.PodRunning
		for _, e := range []localclient.PodEvent{{Type: "ADDED", Object: pod}, {Type: localapi.Bookmark}} {
			if err := w.see(e); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(1500 * time.Millisecond)
		w.progress.Stop()
		if got, want := out.String(), "pod default/web: waiting for deletion: it is Running, with a grace period of 30s\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
