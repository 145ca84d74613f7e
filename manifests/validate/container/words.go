package container

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/internal/expand"
	"monopod/manifests/validate/check"
)

// wordSizes are the lengths of a container's variables as far as the manifest has them; values known only at start count as 0.
type wordSizes struct {
	known map[string]int
	// open is set if there may be further variables, so that an unknown one may have any length.
	open bool
}

func (s wordSizes) length(name string) (int, bool) {
	n, ok := s.known[name]
	return n, ok || s.open
}

// words checks that the environment and the arguments of a container, and the commands that run in it, can be those of a process.
// Nothing is expanded: lengths are enough. Each is a lower bound, because what comes from elsewhere is not known here.
func (c containersChecker) words(p check.PodContainer) {
	sizes := wordSizes{known: make(map[string]int, len(p.Env)), open: len(p.EnvFrom) > 0}
	var all expand.Words
	for i := range p.Env {
		e := &p.Env[i]
		n, was := expand.Length(e.Value, expand.MaxWord, sizes.length), sizes.known[e.Name]
		if _, again := sizes.known[e.Name]; again {
			all.Remove(len(e.Name) + 1 + was)
		}
		if err := all.Add(len(e.Name) + 1 + n); err != nil {
			c.Add(check.TooLong(p.Path.Child("env").Index(i).Child("value"), err.Error()))
			return // variables after it may refer to it
		}
		sizes.known[e.Name] = n
	}
	if !c.command(p.Path.Child("command"), p.Command, &all, sizes) || !c.command(p.Path.Child("args"), p.Args, &all, sizes) {
		return
	}
	for i := range p.VolumeMounts {
		if expand.Length(p.VolumeMounts[i].SubPathExpr, expand.MaxPath, sizes.length) > expand.MaxPath {
			c.Add(check.TooLong(p.Path.Child("volumeMounts").Index(i).Child("subPathExpr"), fmt.Sprintf("the path has more than %d bytes", expand.MaxPath)))
		}
	}
	c.commands(p)
}

// command checks a list of words and reports whether it fits.
func (c containersChecker) command(path *field.Path, words []string, all *expand.Words, sizes wordSizes) bool {
	for i, word := range words {
		if err := all.Add(expand.Length(word, expand.MaxWord, sizes.length)); err != nil {
			c.Add(check.TooLong(path.Index(i), err.Error()))
			return false
		}
	}
	return true
}

// commands checks those of probes, in which only variables with literal values are replaced, and of hooks, in which none are.
func (c containersChecker) commands(p check.PodContainer) {
	probes := []struct {
		name  string
		probe *corev1.Probe
	}{{"livenessProbe", p.LivenessProbe}, {"readinessProbe", p.ReadinessProbe}, {"startupProbe", p.StartupProbe}}
	for _, at := range probes {
		if at.probe != nil && at.probe.Exec != nil {
			c.command(p.Path.Child(at.name, "exec", "command"), at.probe.Exec.Command, &expand.Words{}, literal(p.Env))
		}
	}
	if p.Lifecycle == nil {
		return
	}
	hooks := []struct {
		name string
		hook *corev1.LifecycleHandler
	}{{"postStart", p.Lifecycle.PostStart}, {"preStop", p.Lifecycle.PreStop}}
	for _, at := range hooks {
		if at.hook != nil && at.hook.Exec != nil {
			c.command(p.Path.Child("lifecycle", at.name, "exec", "command"), at.hook.Exec.Command, &expand.Words{}, wordSizes{})
		}
	}
}

// literal are the lengths of the values as they are written.
func literal(env []corev1.EnvVar) wordSizes {
	s := wordSizes{known: make(map[string]int, len(env))}
	for i := range env {
		if env[i].ValueFrom == nil {
			s.known[env[i].Name] = len(env[i].Value)
		}
	}
	return s
}
