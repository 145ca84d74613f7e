package validate

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests"
	"monopod/manifests/validate/check"
	"monopod/manifests/validate/container"
	"monopod/manifests/validate/storage"
)

// objectsChecker checks objects that are no pods, and workloads.
type objectsChecker struct{ *check.Checker }

// Object checks a defaulted object as the API server does: metadata of all kinds, the content of ConfigMaps, Secrets and storage objects,
// and RuntimeClasses. It also checks the claim templates of a StatefulSet, which an API server checks only when it creates the claims.
func Object(obj metav1.Object, cluster bool) field.ErrorList {
	name := apivalidation.ValidateNameFunc(apivalidation.NameIsDNSSubdomain)
	if _, ok := obj.(*corev1.Service); ok {
		name = apivalidation.NameIsDNSLabel
	}
	c := objectsChecker{&check.Checker{}}
	c.Add(apivalidation.ValidateObjectMetaAccessor(obj, !cluster, name, field.NewPath("metadata"))...)
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		c.configMap(o)
	case *corev1.Secret:
		c.secret(o)
	case *corev1.Service:
		c.service(o)
	case *nodev1.RuntimeClass:
		c.runtimeClass(o)
	case *schedulingv1.PriorityClass:
		c.priorityClass(o)
	case *corev1.PersistentVolumeClaim:
		storage.Volumes(c.Checker).ClaimSpec(field.NewPath("spec"), &o.Spec)
	case *corev1.PersistentVolume:
		storage.Volumes(c.Checker).PersistentVolume(o)
	case *manifests.StorageClass:
		storage.Volumes(c.Checker).StorageClass(o)
	case *appsv1.StatefulSet:
		for i := range o.Spec.VolumeClaimTemplates {
			storage.Volumes(c.Checker).ClaimSpec(field.NewPath("spec", "volumeClaimTemplates").Index(i).Child("spec"), &o.Spec.VolumeClaimTemplates[i].Spec)
		}
	}
	return c.Errs
}

func (c objectsChecker) runtimeClass(r *nodev1.RuntimeClass) {
	c.Label(field.NewPath("handler"), r.Handler)
	if r.Overhead != nil {
		container.Resources(c.Checker).Resources(field.NewPath("overhead"), &corev1.ResourceRequirements{Limits: r.Overhead.PodFixed}, container.OfContainer)
	}
	if s := r.Scheduling; s != nil { // it chooses among nodes, and there is only this one
		at := field.NewPath("scheduling")
		c.Add(metav1validation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
		for i := range s.Tolerations {
			schedulingOf(c.Checker).toleration(at.Child("tolerations").Index(i), &s.Tolerations[i])
		}
	}
}

// maxObjectData is the most bytes of values that a ConfigMap or Secret may have.
const maxObjectData = 1 << 20

func (c objectsChecker) configMap(m *corev1.ConfigMap) {
	total := 0
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		path := field.NewPath("data").Key(key)
		c.Invalid(path, key, validation.IsConfigMapKey(key)...)
		if _, twice := m.BinaryData[key]; twice {
			c.Invalid(path, key, "duplicate of key present in binaryData")
		}
		total += len(m.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(m.BinaryData)) {
		c.Invalid(field.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey(key)...)
		total += len(m.BinaryData[key])
	}
	if total > maxObjectData {
		c.Add(field.TooLong(field.NewPath(""), "", maxObjectData))
	}
}

// redacted stands for values of Secrets in messages, as in those of the API server.
const redacted = "<secret contents redacted>"

func (c objectsChecker) secret(s *corev1.Secret) {
	data, total := field.NewPath("data"), 0
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		c.Invalid(data.Key(key), key, validation.IsConfigMapKey(key)...)
		total += len(s.Data[key])
	}
	if total > maxObjectData {
		c.Add(field.TooLong(data, "", maxObjectData))
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		account := field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey)
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			c.Required(account, "")
		}
	case corev1.SecretTypeDockercfg:
		c.jsonKey(s, data, corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		c.jsonKey(s, data, corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			c.Required(data.Key(corev1.BasicAuthUsernameKey), "")
			c.Required(data.Key(corev1.BasicAuthPasswordKey), "")
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			c.Required(data.Key(corev1.SSHAuthPrivateKey), "")
		}
	case corev1.SecretTypeTLS:
		for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			if _, ok := s.Data[key]; !ok {
				c.Required(data.Key(key), "")
			}
		}
	}
}

// jsonKey wants a key that holds JSON.
func (c objectsChecker) jsonKey(s *corev1.Secret, data *field.Path, key string) {
	value, ok := s.Data[key]
	switch {
	case !ok:
		c.Required(data.Key(key), "")
	case !json.Valid(value):
		c.Invalid(data.Key(key), redacted, "it is not valid JSON")
	}
}

// priorityClass checks a class as an API server does.
func (c objectsChecker) priorityClass(p *schedulingv1.PriorityClass) {
	switch builtIn := map[string]int32{manifests.NodeCritical: manifests.NodeCriticalPriority, manifests.ClusterCritical: manifests.ClusterCriticalPriority}; {
	case builtIn[p.Name] != 0:
		if p.Value != builtIn[p.Name] || p.GlobalDefault {
			c.Forbidden(field.NewPath("metadata", "name"), "the class is built in and cannot be changed")
		}
	case strings.HasPrefix(p.Name, "system-"):
		c.Forbidden(field.NewPath("metadata", "name"), "priority class names with 'system-' prefix are reserved for system use only. error: "+p.Name+" is not a known system priority class")
	case p.Value > manifests.HighestPriority:
		c.Forbidden(field.NewPath("value"), "maximum allowed value of a user defined priority is 1000000000")
	}
	if p.PreemptionPolicy != nil {
		check.RequiredOneOf(c.Checker, field.NewPath("preemptionPolicy"), *p.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
}
