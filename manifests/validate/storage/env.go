package storage

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/validate/check"
)

// variablesChecker checks environment variables and what refers to fields and resources.
type variablesChecker struct{ *check.Checker }

// Variables returns the checks of environment variables, which report to c.
func Variables(c *check.Checker) variablesChecker { return variablesChecker{c} }

// Env checks environment variables.
func (c variablesChecker) Env(path *field.Path, env []corev1.EnvVar) {
	for i := range env {
		at := path.Index(i)
		if env[i].Name == "" {
			c.Required(at.Child("name"), "")
		} else {
			c.Invalid(at.Child("name"), env[i].Name, validation.IsRelaxedEnvVarName(env[i].Name)...)
		}
		if env[i].ValueFrom != nil {
			c.valueFrom(at.Child("valueFrom"), &env[i])
		}
	}
}

func (c variablesChecker) valueFrom(path *field.Path, env *corev1.EnvVar) {
	from := env.ValueFrom
	sources := 0
	if from.FieldRef != nil {
		sources++
		c.fieldRef(path.Child("fieldRef"), from.FieldRef, envFields())
	}
	if from.ResourceFieldRef != nil {
		sources++
		c.resourceFieldRef(path.Child("resourceFieldRef"), from.ResourceFieldRef)
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		sources++
		c.keyRef(path.Child("configMapKeyRef"), ref.Name, ref.Key)
	}
	if ref := from.SecretKeyRef; ref != nil {
		sources++
		c.keyRef(path.Child("secretKeyRef"), ref.Name, ref.Key)
	}
	if from.FileKeyRef != nil {
		sources++
		c.fileKeyRef(path.Child("fileKeyRef"), from.FileKeyRef)
	}
	switch {
	case sources == 0:
		c.Invalid(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")
	case env.Value != "":
		c.Invalid(path, "", "may not be specified when `value` is not empty")
	case sources > 1:
		c.Invalid(path, "", "may not have more than one field specified at a time")
	}
}

// envFields are the fields of a pod that a variable can show.
func envFields() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
}

// volumeFields are the fields of a pod that a file of a volume can show.
func volumeFields() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
}

func (c variablesChecker) fieldRef(path *field.Path, ref *corev1.ObjectFieldSelector, fields []string) {
	at := path.Child("fieldPath")
	if ref.FieldPath == "" {
		c.Required(at, "")
		return
	}
	if ref.APIVersion != "v1" {
		c.Invalid(at, ref.FieldPath, "error converting fieldPath: unsupported pod version: "+ref.APIVersion)
		return
	}
	if name, key, ok := splitSubscript(ref.FieldPath); ok {
		switch name {
		case "metadata.annotations":
			c.QualifiedName(path, strings.ToLower(key))
		case "metadata.labels":
			c.QualifiedName(path, key)
		default:
			c.Invalid(at, ref.FieldPath, "error converting fieldPath: field label does not support subscript: "+ref.FieldPath)
		}
		return
	}
	known := append(envFields(), "metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase", "spec.host")
	name := ref.FieldPath
	switch {
	case !slices.Contains(known, name):
		c.Invalid(at, name, "error converting fieldPath: field label not supported: "+name)
	case name == "spec.host" && slices.Contains(fields, "spec.nodeName"):
		// The name of spec.nodeName before v1.
	case !slices.Contains(fields, name):
		c.Add(field.NotSupported(at, name, slices.Sorted(slices.Values(fields))))
	}
}

// splitSubscript takes a path like metadata.labels['key'] apart.
func splitSubscript(path string) (name, key string, ok bool) {
	inner, ok := strings.CutSuffix(path, "']")
	if !ok {
		return path, "", false
	}
	name, key, ok = strings.Cut(inner, "['")
	if !ok || name == "" {
		return path, "", false
	}
	return name, key, true
}

func (c variablesChecker) resourceFieldRef(path *field.Path, ref *corev1.ResourceFieldSelector) {
	if ref.Resource == "" {
		c.Required(path.Child("resource"), "")
		return
	}
	supported := []string{
		"limits.cpu", "limits.ephemeral-storage", "limits.memory",
		"requests.cpu", "requests.ephemeral-storage", "requests.memory",
	}
	huge := strings.HasPrefix(ref.Resource, "limits.hugepages-") || strings.HasPrefix(ref.Resource, "requests.hugepages-")
	if !huge && !slices.Contains(supported, ref.Resource) {
		c.Add(field.NotSupported(path.Child("resource"), ref.Resource, supported))
		return
	}
	if ref.Divisor.Cmp(resource.Quantity{}) == 0 {
		return
	}
	_, name, _ := strings.Cut(ref.Resource, ".")
	allowed := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	list, called := strings.Join(allowed, ", "), name
	switch {
	case name == "cpu":
		allowed, list = []string{"1m", "1"}, "1m and 1"
	case name == "ephemeral-storage":
		called = "local ephemeral storage"
	case huge:
		called = "hugepages"
	}
	if !slices.Contains(allowed, ref.Divisor.String()) {
		c.Invalid(path.Child("divisor"), ref.Resource, fmt.Sprintf("only divisor's values %s are supported with the %s resource", list, called))
	}
}

func (c variablesChecker) keyRef(path *field.Path, name, key string) {
	c.Subdomain(path.Child("name"), name)
	if key == "" {
		c.Required(path.Child("key"), "")
		return
	}
	c.Invalid(path.Child("key"), key, validation.IsConfigMapKey(key)...)
}

func (c variablesChecker) fileKeyRef(path *field.Path, ref *corev1.FileKeySelector) {
	if ref.Key == "" {
		c.Required(path.Child("key"), "")
	} else {
		c.Invalid(path.Child("key"), ref.Key, validation.IsRelaxedEnvVarName(ref.Key)...)
	}
	if ref.VolumeName == "" {
		c.Required(path.Child("volumeName"), "")
	} else {
		c.Label(path.Child("volumeName"), ref.VolumeName)
	}
	if ref.Path == "" {
		c.Required(path.Child("path"), "")
	} else {
		c.NoBacksteps(path.Child("path"), ref.Path)
	}
}

// EnvFrom checks the objects that environment variables are taken from.
func (c variablesChecker) EnvFrom(path *field.Path, from []corev1.EnvFromSource) {
	for i, source := range from {
		at := path.Index(i)
		if source.Prefix != "" {
			c.Invalid(at.Child("prefix"), source.Prefix, validation.IsRelaxedEnvVarName(source.Prefix)...)
		}
		sources := 0
		if source.ConfigMapRef != nil {
			sources++
			c.refName(at.Child("configMapRef", "name"), source.ConfigMapRef.Name)
		}
		if source.SecretRef != nil {
			sources++
			c.refName(at.Child("secretRef", "name"), source.SecretRef.Name)
		}
		switch {
		case sources == 0:
			c.Invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
		case sources > 1:
			c.Invalid(path, "", "may not have more than one field specified at a time")
		}
	}
}

func (c variablesChecker) refName(path *field.Path, name string) {
	if name == "" {
		c.Required(path, "")
		return
	}
	c.Invalid(path, name, apivalidation.NameIsDNSSubdomain(name, true)...)
}
