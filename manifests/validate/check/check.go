// Package check collects what is wrong with one object, in the words of the API server of Kubernetes.
//
// It must not know which fields there are: the packages beside it do.
package check

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TooLong reports a value that is not shown, because it is large.
func TooLong(path *field.Path, detail string) *field.Error {
	return &field.Error{Type: field.ErrorTypeTooLong, Field: path.String(), BadValue: "", Detail: detail}
}

// Checker collects what is wrong with one pod.
type Checker struct {
	// ValidVolumes are the volumes without a problem, by name.
	ValidVolumes map[string]*corev1.Volume
	Pod          *corev1.Pod
	Errs         field.ErrorList
}

// Add reports errors.
func (c *Checker) Add(errs ...*field.Error) { c.Errs = append(c.Errs, errs...) }

// Invalid reports one error for each message, none for none.
func (c *Checker) Invalid(path *field.Path, value any, msgs ...string) {
	for _, msg := range msgs {
		c.Add(field.Invalid(path, value, msg))
	}
}

// Required reports a value that is missing.
func (c *Checker) Required(path *field.Path, detail string) { c.Add(field.Required(path, detail)) }

// Forbidden reports a value that must not be set.
func (c *Checker) Forbidden(path *field.Path, detail string) { c.Add(field.Forbidden(path, detail)) }

// OneOf reports a value that is none of those there are, and names them in the order given.
func OneOf[T ~string](c *Checker, path *field.Path, value T, supported ...T) {
	if !slices.Contains(supported, value) {
		c.Add(field.NotSupported(path, value, supported))
	}
}

// Label reports a value that is no DNS label.
func (c *Checker) Label(path *field.Path, value string) {
	c.Invalid(path, value, validation.IsDNS1123Label(value)...)
}

// Subdomain reports a value that is no DNS subdomain.
func (c *Checker) Subdomain(path *field.Path, value string) {
	c.Invalid(path, value, validation.IsDNS1123Subdomain(value)...)
}

// QualifiedName reports a value that is no qualified name, such as example.com/name.
func (c *Checker) QualifiedName(path *field.Path, value string) {
	c.Invalid(path, value, validation.IsQualifiedName(value)...)
}

// PodContainer is a container of any kind, where it stands.
type PodContainer struct {
	*corev1.Container
	Path *field.Path
}

// AllContainers returns the containers of all kinds, in the order in which the API server visits them.
func (c *Checker) AllContainers(spec *field.Path) []PodContainer {
	var all []PodContainer
	for i := range c.Pod.Spec.InitContainers {
		all = append(all, PodContainer{&c.Pod.Spec.InitContainers[i], spec.Child("initContainers").Index(i)})
	}
	for i := range c.Pod.Spec.Containers {
		all = append(all, PodContainer{&c.Pod.Spec.Containers[i], spec.Child("containers").Index(i)})
	}
	for i := range c.Pod.Spec.EphemeralContainers {
		ephemeral := (*corev1.Container)(&c.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		all = append(all, PodContainer{ephemeral, spec.Child("ephemeralContainers").Index(i)})
	}
	return all
}

// RequiredOneOf is oneOf with words of its own for a value that is missing.
func RequiredOneOf[T ~string](c *Checker, path *field.Path, value T, supported ...T) {
	if value == "" {
		c.Required(path, "")
		return
	}
	OneOf(c, path, value, supported...)
}

// UserID reports an id that no user or group can have; nil is none.
func (c *Checker) UserID(path *field.Path, id *int64) {
	if id != nil {
		c.Invalid(path, *id, validation.IsValidUserID(*id)...)
	}
}

// NoBacksteps checks that a path does not climb.
func (c *Checker) NoBacksteps(path *field.Path, value string) {
	if HasBacksteps(value) {
		c.Invalid(path, value, "must not contain '..'")
	}
}

// HasBacksteps reports whether a path has an element "..".
func HasBacksteps(value string) bool { return slices.Contains(strings.Split(value, "/"), "..") }

// DescendingPath checks that a path stays below where it starts.
func (c *Checker) DescendingPath(at *field.Path, value string) {
	if path.IsAbs(value) {
		c.Invalid(at, value, "must be a relative path")
	}
	c.NoBacksteps(at, value)
}
