// Package environ resolves the environment variables of a container: literal values, fields of the pod, ConfigMaps, Secrets and files of volumes.
// It is pure; it must not read objects or files, which its caller passes in spec.Input.
package environ

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/expand"
	"monopod/runner/spec"
)

// DefaultPath is PATH where neither image nor manifest sets it.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Resolve returns the process environment and the variables that $(NAME) may refer to: those of the manifest
// only, never the image's. The order is fixed (kubelet's is random): PATH, TERM for a terminal, HOSTNAME, the image's, Services and envFrom by name, env;
// a variable that is set again keeps its place.
//
// It never takes more memory than a process can be started with: each value is measured before it is made.
func Resolve(in spec.Input, c *corev1.Container) (*envList, map[string]string, error) {
	env := newEnvList()
	if err := env.fromImage(in, c); err != nil {
		return nil, nil, fmt.Errorf("environment of the image: %w", err)
	}
	if err := fit(in.Services); err != nil {
		return nil, nil, fmt.Errorf("container %q: variables of Services: %w; set enableServiceLinks: false", c.Name, err)
	}
	vars := make(map[string]string, len(c.Env)+len(in.Services))
	maps.Copy(vars, in.Services) // all others take precedence
	if err := envFrom(in, c, vars); err != nil {
		return nil, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if err := env.set(name, vars[name]); err != nil {
			return nil, nil, fmt.Errorf("container %q: envFrom: variable %s: %w", c.Name, name, err)
		}
	}
	for i := range c.Env {
		e := &c.Env[i]
		value, err := envValue(in, c, e, vars)
		if err == nil {
			err = env.set(e.Name, value)
		}
		switch {
		case errors.Is(err, errOptional):
			continue
		case IsMissing(err):
			return nil, nil, err // in kubelet's words, which name the object
		case isTooMuch(err):
			return nil, nil, fmt.Errorf("container %q: env[%d] %s: %w", c.Name, i, e.Name, err)
		case err != nil:
			return nil, nil, fmt.Errorf("env %s: %w", e.Name, err)
		}
		vars[e.Name] = value
	}
	return env, vars, nil
}

// maxServices bounds the variables of Services, in bytes: few manifests make many of them, and each container has a copy.
const maxServices = 512 << 10

// fit returns an error if variables of Services are too large. They are measured before they are copied.
func fit(vars map[string]string) error {
	total := 0
	for name, value := range vars {
		if total += size(name, value); total > maxServices {
			return fmt.Errorf("together they have more than %d bytes", maxServices)
		}
	}
	return nil
}

// isTooMuch reports an error about the size of a process's arguments and variables.
func isTooMuch(err error) bool {
	_, words := errors.AsType[*expand.WordsError](err)
	_, long := errors.AsType[*expand.TooLongError](err)
	return words || long
}

// envValue returns the value of one variable; vars are those defined before it.
func envValue(in spec.Input, c *corev1.Container, e *corev1.EnvVar, vars map[string]string) (string, error) {
	switch from := e.ValueFrom; {
	case e.Value != "" || from == nil:
		return expand.Within(expand.MaxWord, e.Value, vars)
	case from.FieldRef != nil:
		return Field(in, from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		return Resource(in, c, from.ResourceFieldRef)
	case from.ConfigMapKeyRef != nil:
		return configMapValue(in, from.ConfigMapKeyRef)
	case from.SecretKeyRef != nil:
		return secretValue(in, from.SecretKeyRef)
	case from.FileKeyRef != nil:
		return fileValue(in, from.FileKeyRef)
	default:
		return "", errors.New("this kind of valueFrom is not supported by this release")
	}
}

// hostnameOf is what the pod calls itself.
func hostnameOf(in spec.Input) string {
	if in.Sandbox.Hostname == "" {
		return in.Host.NodeName
	}
	return in.Sandbox.Hostname
}

// envList is an ordered set of variables that a process can be started with.
type envList struct {
	list []envVar
	// at is where a variable is in the list.
	at    map[string]int
	Words expand.Words
}

type envVar struct {
	name, value string
	unset       bool
}

func newEnvList() *envList { return &envList{at: map[string]int{}} }

// fromImage sets the variables that do not come from the manifest.
func (l *envList) fromImage(in spec.Input, c *corev1.Container) error {
	own := []string{"PATH=" + DefaultPath}
	if c.TTY {
		own = append(own, "TERM=xterm")
	}
	own = append(own, "HOSTNAME="+hostnameOf(in))
	for _, list := range [][]string{own, in.Image.Env} {
		for _, e := range list {
			name, value, ok := strings.Cut(e, "=")
			if !ok {
				// An entry without "=" removes what was set before; containerd reads images like that.
				l.unset(name)
				continue
			}
			if err := l.set(name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// size is how long a variable is as NAME=value.
func size(name, value string) int { return len(name) + len("=") + len(value) }

// set adds a variable or changes it where it is.
func (l *envList) set(name, value string) error {
	if i, ok := l.at[name]; ok {
		l.Words.Remove(size(name, l.list[i].value))
		l.list[i].value = value
	} else {
		l.at[name] = len(l.list)
		l.list = append(l.list, envVar{name: name, value: value})
	}
	return l.Words.Add(size(name, value))
}

// unset removes a variable.
func (l *envList) unset(name string) {
	if i, ok := l.at[name]; ok {
		l.Words.Remove(size(name, l.list[i].value))
		l.list[i].unset = true
		delete(l.at, name)
	}
}

// Entries returns NAME=value in order.
func (l *envList) Entries() []string {
	out := make([]string, 0, len(l.at))
	for _, v := range l.list {
		if !v.unset {
			out = append(out, v.name+"="+v.value)
		}
	}
	return out
}
