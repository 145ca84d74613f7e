package spec

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// defaultPath is PATH where neither image nor manifest sets it.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment returns the process environment and the variables that $(NAME) may refer to: those of the manifest
// only, never the image's. The order is fixed (kubelet's is random): PATH, TERM for a terminal, HOSTNAME, the image's, envFrom by name, env;
// a variable that is set again keeps its place.
func environment(in Input, c *corev1.Container) ([]string, map[string]string, error) {
	var env envList
	env.set("PATH", defaultPath)
	if c.TTY {
		env.set("TERM", "xterm")
	}
	env.set("HOSTNAME", hostnameOf(in))
	for _, e := range in.Image.Env {
		// An entry without "=" removes what was set before; containerd reads images like that.
		if name, value, ok := strings.Cut(e, "="); ok {
			env.set(name, value)
		} else {
			env.unset(name)
		}
	}
	vars := make(map[string]string, len(c.Env))
	if err := envFrom(in, c, vars); err != nil {
		return nil, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env.set(name, vars[name])
	}
	for i := range c.Env {
		value, err := envValue(in, c, &c.Env[i], vars)
		switch {
		case errors.Is(err, errOptional):
			continue
		case isMissing(err):
			return nil, nil, err // in kubelet's words, which name the object
		case err != nil:
			return nil, nil, fmt.Errorf("env %s: %w", c.Env[i].Name, err)
		}
		vars[c.Env[i].Name] = value
		env.set(c.Env[i].Name, value)
	}
	return env.entries(), vars, nil
}

// envValue returns the value of one variable; vars are those defined before it.
func envValue(in Input, c *corev1.Container, e *corev1.EnvVar, vars map[string]string) (string, error) {
	switch from := e.ValueFrom; {
	case e.Value != "" || from == nil:
		return expand(e.Value, vars), nil
	case from.FieldRef != nil:
		return fieldValue(in, from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		return resourceValue(in, c, from.ResourceFieldRef)
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
func hostnameOf(in Input) string {
	if in.Sandbox.Hostname == "" {
		return in.Host.NodeName
	}
	return in.Sandbox.Hostname
}

// envList is an ordered set of variables.
type envList struct {
	names  []string
	values map[string]string
}

// set adds a variable or changes it where it is.
func (l *envList) set(name, value string) {
	if l.values == nil {
		l.values = map[string]string{}
	}
	if _, ok := l.values[name]; !ok {
		l.names = append(l.names, name)
	}
	l.values[name] = value
}

// unset removes a variable.
func (l *envList) unset(name string) {
	if _, ok := l.values[name]; !ok {
		return
	}
	delete(l.values, name)
	kept := l.names[:0]
	for _, n := range l.names {
		if n != name {
			kept = append(kept, n)
		}
	}
	l.names = kept
}

// entries returns NAME=value in order.
func (l *envList) entries() []string {
	out := make([]string, 0, len(l.names))
	for _, n := range l.names {
		out = append(out, n+"="+l.values[n])
	}
	return out
}
