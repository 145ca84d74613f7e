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
)

// Object checks a defaulted object as the API server does: metadata of all kinds, the content of ConfigMaps,
// Secrets and what has to do with storage, and RuntimeClasses. It does check the claims of a StatefulSet,
// of which an API server says nothing until it is to make them.
func Object(obj metav1.Object, cluster bool) field.ErrorList {
	name := apivalidation.ValidateNameFunc(apivalidation.NameIsDNSSubdomain)
	if _, ok := obj.(*corev1.Service); ok {
		name = apivalidation.NameIsDNSLabel
	}
	c := &checker{}
	c.add(apivalidation.ValidateObjectMetaAccessor(obj, !cluster, name, field.NewPath("metadata"))...)
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		c.configMap(o)
	case *corev1.Secret:
		c.secret(o)
	case *nodev1.RuntimeClass:
		c.runtimeClass(o)
	case *schedulingv1.PriorityClass:
		c.priorityClass(o)
	case *corev1.PersistentVolumeClaim:
		c.claimSpec(field.NewPath("spec"), &o.Spec)
	case *corev1.PersistentVolume:
		c.persistentVolume(o)
	case *manifests.StorageClass:
		c.storageClass(o)
	case *appsv1.StatefulSet:
		for i := range o.Spec.VolumeClaimTemplates {
			c.claimSpec(field.NewPath("spec", "volumeClaimTemplates").Index(i).Child("spec"), &o.Spec.VolumeClaimTemplates[i].Spec)
		}
	}
	return c.errs
}

func (c *checker) runtimeClass(r *nodev1.RuntimeClass) {
	c.label(field.NewPath("handler"), r.Handler)
	if r.Overhead != nil {
		c.resources(field.NewPath("overhead"), &corev1.ResourceRequirements{Limits: r.Overhead.PodFixed}, containerResource)
	}
	if s := r.Scheduling; s != nil { // it chooses among nodes, and there is only this one
		at := field.NewPath("scheduling")
		c.add(metav1validation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
		for i := range s.Tolerations {
			c.toleration(at.Child("tolerations").Index(i), &s.Tolerations[i])
		}
	}
}

// maxObjectData is the most bytes of values that a ConfigMap or Secret may have.
const maxObjectData = 1 << 20

func (c *checker) configMap(m *corev1.ConfigMap) {
	total := 0
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		path := field.NewPath("data").Key(key)
		c.invalid(path, key, validation.IsConfigMapKey(key)...)
		if _, twice := m.BinaryData[key]; twice {
			c.invalid(path, key, "duplicate of key present in binaryData")
		}
		total += len(m.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(m.BinaryData)) {
		c.invalid(field.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey(key)...)
		total += len(m.BinaryData[key])
	}
	if total > maxObjectData {
		c.add(field.TooLong(field.NewPath(""), "", maxObjectData))
	}
}

// redacted stands for values of Secrets in messages, as in those of the API server.
const redacted = "<secret contents redacted>"

func (c *checker) secret(s *corev1.Secret) {
	data, total := field.NewPath("data"), 0
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		c.invalid(data.Key(key), key, validation.IsConfigMapKey(key)...)
		total += len(s.Data[key])
	}
	if total > maxObjectData {
		c.add(field.TooLong(data, "", maxObjectData))
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		account := field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey)
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			c.required(account, "")
		}
	case corev1.SecretTypeDockercfg:
		c.jsonKey(s, data, corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		c.jsonKey(s, data, corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			c.required(data.Key(corev1.BasicAuthUsernameKey), "")
			c.required(data.Key(corev1.BasicAuthPasswordKey), "")
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			c.required(data.Key(corev1.SSHAuthPrivateKey), "")
		}
	case corev1.SecretTypeTLS:
		for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			if _, ok := s.Data[key]; !ok {
				c.required(data.Key(key), "")
			}
		}
	}
}

// jsonKey wants a key that holds JSON.
func (c *checker) jsonKey(s *corev1.Secret, data *field.Path, key string) {
	value, ok := s.Data[key]
	switch {
	case !ok:
		c.required(data.Key(key), "")
	case !json.Valid(value):
		c.invalid(data.Key(key), redacted, "it is not valid JSON")
	}
}

// priorityClass checks a class as an API server does.
func (c *checker) priorityClass(p *schedulingv1.PriorityClass) {
	switch builtIn := map[string]int32{manifests.NodeCritical: manifests.NodeCriticalPriority, manifests.ClusterCritical: manifests.ClusterCriticalPriority}; {
	case builtIn[p.Name] != 0:
		if p.Value != builtIn[p.Name] || p.GlobalDefault {
			c.forbidden(field.NewPath("metadata", "name"), "the class is built in and cannot be changed")
		}
	case strings.HasPrefix(p.Name, "system-"):
		c.forbidden(field.NewPath("metadata", "name"), "priority class names with 'system-' prefix are reserved for system use only. error: "+p.Name+" is not a known system priority class")
	case p.Value > manifests.HighestPriority:
		c.forbidden(field.NewPath("value"), "maximum allowed value of a user defined priority is 1000000000")
	}
	if p.PreemptionPolicy != nil {
		requiredOneOf(c, field.NewPath("preemptionPolicy"), *p.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
}
