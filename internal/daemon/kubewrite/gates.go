package kubewrite

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/atomicfile"
)

// gates are the conditions that clients have set for readiness gates of pods of workloads and of files, by uid. They are stored in one file, which is
// written when one of them changes, and with the removal of a pod. Applied pods have theirs in their own files.
type gates map[types.UID][]corev1.PodCondition

// gatesFile returns the file of the gates, beside the directory of the store.
func (m *OwnObjects) gatesFile() string {
	return filepath.Join(filepath.Dir(m.store.Dir()), "readiness-gates.json")
}

// readGates reads the stored gates once. An error is why some may be lost.
func (m *OwnObjects) readGates() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readGatesLocked()
}

func (m *OwnObjects) readGatesLocked() error {
	if m.gates != nil {
		return nil
	}
	m.gates, m.storedGates = gates{}, gates{}
	data, err := atomicfile.Read(m.gatesFile(), atomicfile.MaxState)
	if err == nil {
		err = json.Unmarshal(data, &m.gates)
	}
	if err != nil || m.gates == nil {
		m.gates = gates{}
	}
	m.storedGates = maps.Clone(m.gates)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// setGates sets the conditions of pods, drops those of pods that do not exist, and stores what has changed. What cannot be stored is set nevertheless,
// and stored with the next change.
func (m *OwnObjects) setGates(set gates, exists func() func(types.UID) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.readGatesLocked() // Writer.Load has reported it
	if len(set)+len(m.gates)+len(m.storedGates) == 0 {
		return nil
	}
	there := exists()
	maps.DeleteFunc(m.gates, func(u types.UID, _ []corev1.PodCondition) bool { return !there(u) })
	for uid, conditions := range set {
		if m.gates[uid] = conditions; len(conditions) == 0 {
			delete(m.gates, uid)
		}
	}
	if maps.EqualFunc(m.gates, m.storedGates, sameConditions) {
		return nil
	}
	data, err := json.Marshal(m.gates)
	if err == nil {
		err = atomicfile.Write(m.gatesFile(), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("store the conditions of readiness gates: %w", err)
	}
	m.storedGates = maps.Clone(m.gates)
	return nil
}

// sameConditions compares conditions without the time at which a client has looked, which may change all the time.
func sameConditions(a, b []corev1.PodCondition) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.PodCondition) bool {
		x.LastProbeTime, y.LastProbeTime = metav1.Time{}, metav1.Time{}
		same := x.LastTransitionTime.Equal(&y.LastTransitionTime)
		x.LastTransitionTime, y.LastTransitionTime = metav1.Time{}, metav1.Time{}
		return same && x == y
	})
}

// gatesTo adds the gates to others.
func (m *OwnObjects) gatesTo(all map[types.UID][]corev1.PodCondition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.Copy(all, m.gates)
}
