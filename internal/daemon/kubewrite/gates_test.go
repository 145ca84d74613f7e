package kubewrite

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/watcher/applied"
)

func gate(status corev1.ConditionStatus, probe int64) []corev1.PodCondition {
	return []corev1.PodCondition{{Type: "example.com/a", Status: status, LastProbeTime: metav1.Unix(probe, 0), LastTransitionTime: metav1.Unix(1, 0)}}
}

func everyPod(types.UID) bool { return true }

// TestGatesAreStoredWhenTheyChange: once per change, and not for each look of a client.
func TestGatesAreStoredWhenTheyChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := NewMemory(applied.NewStore(filepath.Join(dir, "applied")))
	file := filepath.Join(dir, "readiness-gates.json")
	written := func() bool {
		err := os.Remove(file)
		return err == nil
	}
	exists := func() func(types.UID) bool { return everyPod }
	for i, c := range []struct {
		set    gates
		stored bool
	}{
		{gates{}, false},
		{gates{"a": gate(corev1.ConditionTrue, 1)}, true},
		{gates{"a": gate(corev1.ConditionTrue, 2)}, false},
		{gates{"b": gate(corev1.ConditionTrue, 2)}, true},
		{gates{"a": gate(corev1.ConditionFalse, 2)}, true},
		{gates{}, false},
		{gates{"a": nil}, true},
	} {
		if err := m.setGates(c.set, exists); err != nil {
			t.Fatal(err)
		}
		if got := written(); got != c.stored {
			t.Errorf("step %d: stored: %t", i, got)
		}
	}
}

// TestGatesAreReadAtTheNextStart, also after a failure to store them, and without those of removed pods.
func TestGatesAreReadAtTheNextStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "readiness-gates.json")
	start := func() (*OwnObjects, gates, error) {
		m := NewMemory(applied.NewStore(filepath.Join(dir, "applied")))
		err := m.readGates()
		all := gates{}
		m.gatesTo(all)
		return m, all, err
	}
	only := func(uid types.UID) func() func(types.UID) bool {
		return func() func(types.UID) bool { return func(u types.UID) bool { return u == uid } }
	}
	m, all, err := start()
	if err != nil || len(all) > 0 {
		t.Fatal(all, err)
	}
	if err := m.setGates(gates{"a": gate(corev1.ConditionTrue, 1)}, only("a")); err != nil {
		t.Fatal(err)
	}
	m, all, err = start()
	if err != nil || len(all) != 1 || !sameConditions(all["a"], gate(corev1.ConditionTrue, time.Now().Unix())) {
		t.Errorf("%v %v", all, err)
	}
	if err := m.setGates(gates{"b": gate(corev1.ConditionTrue, 1)}, only("b")); err != nil {
		t.Fatal(err)
	}
	if _, all, _ = start(); len(all) != 1 || all["b"] == nil {
		t.Errorf("%v", all)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, all, err = start()
	if err == nil || len(all) > 0 {
		t.Errorf("damaged: %v %v", all, err)
	}
	m.store = applied.NewStore(filepath.Join(dir, "missing", "applied"))
	if err := m.setGates(gates{"c": gate(corev1.ConditionTrue, 1)}, only("c")); err == nil {
		t.Error("nothing is wrong")
	}
	m.store = applied.NewStore(filepath.Join(dir, "applied"))
	if err := m.setGates(gates{}, only("c")); err != nil {
		t.Fatal(err)
	}
	if _, all, err = start(); err != nil || len(all) != 1 {
		t.Errorf("%v %v", all, err)
	}
}
