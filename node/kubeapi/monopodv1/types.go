// Package monopodv1 has the types of monopod.dev/v1alpha1: what monopod knows and Kubernetes has no kind for.
//
// It has no behavior. Goroutines: none.
package monopodv1

import (
	"encoding/json"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version.
var SchemeGroupVersion = schema.GroupVersion{Group: "monopod.dev", Version: "v1alpha1"} //nolint:gochecknoglobals // a constant that Go cannot write as one

// AddToScheme adds the types to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &Source{}, &SourceList{}, &Revision{}, &RevisionList{}, &Image{}, &ImageList{}, &Agent{}, &AgentList{}, &PodReport{}, &PodReportList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}

// Source is an input that manifests are read from: a file, directory, URL or registry. Its name is derived from its path.
type Source struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            SourceStatus `json:"status"`
}

// SourceStatus is the result of reading a source.
type SourceStatus struct {
	// Kind is the type of source, such as file, url or applied. Location is the path or URL.
	Kind     string `json:"kind"`
	Location string `json:"location"`
	// Verdict is Accepted, Refused (invalid), Ignored (no manifests), Unreachable, or Conflict (it defines what another source defines). The
	// last accepted content stays in effect.
	Verdict string `json:"verdict"`
	// Since is when it got this verdict.
	Since metav1.Time `json:"since,omitempty"`
	// Pods and Objects are the pods and objects that it defines, as namespace/name and Kind namespace/name.
	Pods    []string `json:"pods,omitempty"`
	Objects []string `json:"objects,omitempty"`
	// Conditions has Accepted: whether all of it has been read and accepted.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Causes are its errors.
	Causes []SourceCause `json:"causes,omitempty"`
	// Notes report fields and objects that have no effect.
	Notes []string `json:"notes,omitempty"`
	// FromDisk is when its content was received, if it comes from the disk cache because the source has not responded since startup.
	FromDisk metav1.Time `json:"fromDisk,omitempty"`
}

// SourceCause is an error of a source.
type SourceCause struct {
	// Reason is machine-readable: a Kubernetes validation cause, such as FieldValueInvalid; why a source cannot be reached, such as TimedOut;
	// or the verdict.
	Reason string `json:"reason"`
	// Kind, Namespace and Name are of the object concerned, Field is the path in it, such as spec.containers[0].image.
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Field     string `json:"field,omitempty"`
	// File, Line and Column are its location; lines and columns start at 1.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Message describes the error, Hint how to fix it.
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	// RetryAt is when the source is retried automatically.
	RetryAt *metav1.Time `json:"retryAt,omitempty"`
}

// Revision is one accepted content of the manifest of a pod. Its name is NAME-NUMBER.
type Revision struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Pod is the name of the pod, Number counts its revisions.
	Pod    string         `json:"pod"`
	Number int            `json:"number"`
	Status RevisionStatus `json:"status"`
	// Manifest is the pod with its defaults.
	Manifest json.RawMessage `json:"manifest,omitempty"`
}

// RevisionStatus is the outcome of a revision.
type RevisionStatus struct {
	// Wanted reports the revision of the current manifest, Active the one that runs or is about to run.
	Wanted bool `json:"wanted"`
	Active bool `json:"active"`
	// Outcome is Progressing, Ready, Failed, Reverted or Superseded.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	Source  string `json:"source,omitempty"`
	// Images are the digests that it ran with, by container.
	Images  map[string]string `json:"images,omitempty"`
	Settled metav1.Time       `json:"settled,omitempty"`
}

// Image is an image on the disk. Its name is its digest, with a dash for the colon.
type Image struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Digest            string   `json:"digest"`
	Names             []string `json:"names,omitempty"`
	// SizeBytes is its size on disk, OwnBytes the part not shared with other images.
	SizeBytes int64 `json:"sizeBytes"`
	OwnBytes  int64 `json:"ownBytes"`
	// UsedBy are pods that use it, as namespace/name.
	UsedBy []string `json:"usedBy,omitempty"`
	// NeededBy is why garbage collection keeps it.
	NeededBy []ImageNeed `json:"neededBy,omitempty"`
	LastUsed metav1.Time `json:"lastUsed,omitempty"`
}

// ImageNeed is a reason to keep an image.
type ImageNeed struct {
	// Reason is Manifest, Revision, Preload or Undecided; By the object that names it, or the file that holds it.
	Reason string `json:"reason"`
	By     string `json:"by,omitempty"`
}

// Agent is monopod itself. Its name is that of the node.
type Agent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Version           string `json:"version"`
	PID               int    `json:"pid"`
	// ResidentBytes is the memory of the daemon, ShimBytes that of the shims of its containers.
	ResidentBytes int64 `json:"residentBytes"`
	ShimBytes     int64 `json:"shimBytes"`
	// MemoryLimitBytes is the limit of its budget, if it has one.
	MemoryLimitBytes int64 `json:"memoryLimitBytes,omitempty"`
	// Conditions are those of pressure on the machine.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Warnings list what could not be read.
	Warnings []string `json:"warnings,omitempty"`
}

// PodReport is a pod as monopod sees it: the Pod plus monopod.dev annotations with its origin, its problem, the next action and the running
// revision.
type PodReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec and Status are those of a Pod.
	Spec   json.RawMessage `json:"spec,omitempty"`
	Status json.RawMessage `json:"status,omitempty"`
}

// PodReportList is a list of reports.
type PodReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodReport `json:"items"`
}

// SourceList is a list of sources.
type SourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Source `json:"items"`
}

// RevisionList is a list of revisions.
type RevisionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Revision `json:"items"`
}

// ImageList is a list of images.
type ImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Image `json:"items"`
}

// AgentList is a list of agents.
type AgentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Agent `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (s *Source) DeepCopyObject() runtime.Object {
	c := *s
	s.DeepCopyInto(&c.ObjectMeta)
	to, from := &c.Status, &s.Status
	to.Pods, to.Objects, to.Notes, to.Conditions = slices.Clone(from.Pods), slices.Clone(from.Objects), slices.Clone(from.Notes), slices.Clone(from.Conditions)
	to.Causes = slices.Clone(from.Causes)
	for i := range to.Causes {
		to.Causes[i].RetryAt = to.Causes[i].RetryAt.DeepCopy()
	}
	return &c
}

// DeepCopyObject implements runtime.Object.
func (r *Revision) DeepCopyObject() runtime.Object {
	c := *r
	r.DeepCopyInto(&c.ObjectMeta)
	c.Manifest, c.Status.Images = slices.Clone(r.Manifest), maps.Clone(r.Status.Images)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (i *Image) DeepCopyObject() runtime.Object {
	c := *i
	i.DeepCopyInto(&c.ObjectMeta)
	c.Names, c.UsedBy, c.NeededBy = slices.Clone(i.Names), slices.Clone(i.UsedBy), slices.Clone(i.NeededBy)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (a *Agent) DeepCopyObject() runtime.Object {
	c := *a
	a.DeepCopyInto(&c.ObjectMeta)
	c.Warnings, c.Conditions = slices.Clone(a.Warnings), slices.Clone(a.Conditions)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *SourceList) DeepCopyObject() runtime.Object {
	c := *l
	l.DeepCopyInto(&c.ListMeta)
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*Source))
	}
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *RevisionList) DeepCopyObject() runtime.Object {
	c := *l
	l.DeepCopyInto(&c.ListMeta)
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*Revision))
	}
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *ImageList) DeepCopyObject() runtime.Object {
	c := *l
	l.DeepCopyInto(&c.ListMeta)
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*Image))
	}
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *AgentList) DeepCopyObject() runtime.Object {
	c := *l
	l.DeepCopyInto(&c.ListMeta)
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*Agent))
	}
	return &c
}

// DeepCopyObject implements runtime.Object.
func (p *PodReport) DeepCopyObject() runtime.Object {
	c := *p
	p.DeepCopyInto(&c.ObjectMeta)
	c.Spec, c.Status = slices.Clone(p.Spec), slices.Clone(p.Status)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *PodReportList) DeepCopyObject() runtime.Object {
	c := *l
	l.DeepCopyInto(&c.ListMeta)
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*PodReport))
	}
	return &c
}
