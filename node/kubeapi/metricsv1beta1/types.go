// Package metricsv1beta1 has the types of metrics.k8s.io/v1beta1, which `kubectl top` reads.
//
// It has no behavior. Goroutines: none.
package metricsv1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version.
var SchemeGroupVersion = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"} //nolint:gochecknoglobals // a constant that Go cannot write as one

// AddToScheme adds the types to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &NodeMetrics{}, &NodeMetricsList{}, &PodMetrics{}, &PodMetricsList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}

// NodeMetrics is what a node uses.
type NodeMetrics struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Timestamp is the end of the Window over which CPU usage was measured.
	Timestamp metav1.Time     `json:"timestamp"`
	Window    metav1.Duration `json:"window"`
	// Usage has cpu in cores and memory, the working set, in bytes.
	Usage corev1.ResourceList `json:"usage"`
}

// NodeMetricsList is a list of NodeMetrics.
type NodeMetricsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeMetrics `json:"items"`
}

// PodMetrics is what the containers of a pod use.
type PodMetrics struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Timestamp         metav1.Time        `json:"timestamp"`
	Window            metav1.Duration    `json:"window"`
	Containers        []ContainerMetrics `json:"containers"`
}

// ContainerMetrics is what a container uses.
type ContainerMetrics struct {
	Name  string              `json:"name"`
	Usage corev1.ResourceList `json:"usage"`
}

// PodMetricsList is a list of PodMetrics.
type PodMetricsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodMetrics `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (m *NodeMetrics) DeepCopyObject() runtime.Object {
	c := *m
	m.DeepCopyInto(&c.ObjectMeta)
	c.Usage = m.Usage.DeepCopy()
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *NodeMetricsList) DeepCopyObject() runtime.Object {
	c := *l
	l.DeepCopyInto(&c.ListMeta)
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*NodeMetrics))
	}
	return &c
}

// DeepCopyObject implements runtime.Object.
func (m *PodMetrics) DeepCopyObject() runtime.Object {
	c := *m
	m.DeepCopyInto(&c.ObjectMeta)
	c.Containers = nil
	for _, one := range m.Containers {
		c.Containers = append(c.Containers, ContainerMetrics{Name: one.Name, Usage: one.Usage.DeepCopy()})
	}
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *PodMetricsList) DeepCopyObject() runtime.Object {
	c := *l
	l.DeepCopyInto(&c.ListMeta)
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*PodMetrics))
	}
	return &c
}
