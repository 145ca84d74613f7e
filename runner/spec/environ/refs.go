package environ

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/internal/cause"
	"monopod/internal/expand"
	"monopod/internal/sharing"
	"monopod/manifests"
	"monopod/runner/spec"
)

// Missing is the error of an object that the pod cannot do without and that does not exist, or that its source must not see.
func Missing(in spec.Input, kind, name string) error {
	if err := sharing.Refused(in.Refs, manifests.ObjectID{Kind: kind, Namespace: in.Pod.Namespace, Name: name}); err != nil {
		return err
	}
	c := cause.Cause{Kind: cause.MissingConfigMap, Object: cause.Object{Kind: kind, Name: name}}
	if kind == cause.Secret {
		c.Kind = cause.MissingSecret
	}
	return cause.Wrap(fmt.Errorf("%s %q not found", strings.ToLower(kind), name), c)
}

// MissingKey is the error of a key that an object does not have.
func MissingKey(kind, name, key, format string, args ...any) error {
	return cause.Wrap(fmt.Errorf(format, args...), cause.Cause{Kind: cause.MissingKey, Object: cause.Object{Kind: kind, Name: name}, Key: key})
}

// IsMissing reports whether an error is about an object, or a key of one, that the pod cannot do without and that does not exist.
func IsMissing(err error) bool {
	switch cause.Of(err).Kind {
	case cause.MissingConfigMap, cause.MissingSecret, cause.MissingKey, cause.NotShared:
		return true
	}
	return false
}

// errOptional means that a variable is omitted: its optional object or key does not exist.
var errOptional = errors.New("optional")

// envFrom enters the variables of whole objects; later ones win.
func envFrom(in spec.Input, c *corev1.Container, vars map[string]string) error {
	room := maxFromObjects
	for i := range c.EnvFrom {
		from := &c.EnvFrom[i]
		switch {
		case from.ConfigMapRef != nil:
			m := in.Refs.ConfigMap(from.ConfigMapRef.Name)
			switch {
			case m == nil && ptr.Deref(from.ConfigMapRef.Optional, false):
				continue
			case m == nil:
				return Missing(in, cause.ConfigMap, from.ConfigMapRef.Name)
			}
			for key, value := range m.Data {
				if room -= len(from.Prefix) + len(key) + len(value) + entryCost; room < 0 {
					return tooMuchFrom(c, i)
				}
				vars[from.Prefix+key] = value
			}
		case from.SecretRef != nil:
			s := in.Refs.Secret(from.SecretRef.Name)
			switch {
			case s == nil && ptr.Deref(from.SecretRef.Optional, false):
				continue
			case s == nil:
				return Missing(in, cause.Secret, from.SecretRef.Name)
			}
			for key, value := range s.Data {
				if room -= len(from.Prefix) + len(key) + len(value) + entryCost; room < 0 {
					return tooMuchFrom(c, i)
				}
				vars[from.Prefix+key] = string(value)
			}
		}
	}
	return nil
}

// maxFromObjects limits the bytes read by envFrom, replaced values included: a manifest may name the same object thousands of times.
const (
	maxFromObjects = 8 * expand.MaxWords
	// entryCost is what an entry of a map takes besides its bytes.
	entryCost = 32
)

func tooMuchFrom(c *corev1.Container, i int) error {
	return fmt.Errorf("container %q: envFrom[%d]: the objects that variables come from have more than %d bytes together", c.Name, i, maxFromObjects)
}

func configMapValue(in spec.Input, ref *corev1.ConfigMapKeySelector) (string, error) {
	m := in.Refs.ConfigMap(ref.Name)
	if m != nil {
		if value, ok := m.Data[ref.Key]; ok {
			return value, nil
		}
	}
	switch {
	case ptr.Deref(ref.Optional, false):
		return "", errOptional
	case m == nil:
		return "", Missing(in, cause.ConfigMap, ref.Name)
	}
	return "", MissingKey(cause.ConfigMap, ref.Name, ref.Key, "couldn't find key %s in ConfigMap %s/%s", ref.Key, in.Pod.Namespace, ref.Name)
}

func secretValue(in spec.Input, ref *corev1.SecretKeySelector) (string, error) {
	s := in.Refs.Secret(ref.Name)
	if s != nil {
		if value, ok := s.Data[ref.Key]; ok {
			return string(value), nil
		}
	}
	switch {
	case ptr.Deref(ref.Optional, false):
		return "", errOptional
	case s == nil:
		return "", Missing(in, cause.Secret, ref.Name)
	}
	return "", MissingKey(cause.Secret, ref.Name, ref.Key, "couldn't find key %s in Secret %s/%s", ref.Key, in.Pod.Namespace, ref.Name)
}

// HasSecretEnv reports whether the environment and arguments of a container can contain Secrets, and so must not be stored.
func HasSecretEnv(c *corev1.Container) bool {
	for i := range c.EnvFrom {
		if c.EnvFrom[i].SecretRef != nil {
			return true
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.SecretKeyRef != nil {
			return true
		}
	}
	return false
}
