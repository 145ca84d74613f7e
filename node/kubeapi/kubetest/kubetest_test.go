package kubetest_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/kubeapi"
	"monopod/node/kubeapi/kubetest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	kubetest.Contract(t, func(*testing.T) kubetest.Subject {
		s := kubetest.New()
		return kubetest.Subject{Writer: s, State: s}
	})
}

func TestPodsEndOverTime(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default", UID: "u"}}
	s := kubetest.New(pod)
	changed, cancel := s.Subscribe()
	defer cancel()
	r := kubetest.RefOf(pod)
	_, err := s.Write(t.Context(), false, func() (kubeapi.Change, error) {
		return kubeapi.Change{Remove: []kubeapi.Removal{{Ref: r, UID: "u", GraceSeconds: new(int64(9))}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	<-changed
	if o := s.Get(r); o == nil || *o.GetDeletionGracePeriodSeconds() != 9 {
		t.Errorf("have %v", o)
	}
	s.End(r)
	<-changed
	if s.Get(r) != nil || s.Writes() != 1 {
		t.Error("it did not end")
	}
}
