// Package validatetest is test support: it validates pods whose spec a test writes as YAML.
//
// Only tests import it.
package validatetest

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/defaults"
	"monopod/manifests/manifesttest"
	"monopod/manifests/validate/check"
)

// Case is a pod spec and everything that is wrong with it.
type Case struct {
	Name string
	// Spec is YAML: the fields of the spec.
	Spec string
	Want []string
}

// Run sets the defaults of each pod, validates it and compares the errors, which may have any order.
func Run(t *testing.T, validate func(c *check.Checker, spec *field.Path), cases []Case) {
	t.Helper()
	for _, tt := range cases {
		t.Run(tt.Name, func(t *testing.T) {
			got := Errors(t, validate, tt.Spec)
			slices.Sort(got)
			want := slices.Sorted(slices.Values(tt.Want))
			if !slices.Equal(got, want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
			}
		})
	}
}

// Errors returns what is wrong with one spec.
func Errors(t *testing.T, validate func(c *check.Checker, spec *field.Path), spec string) []string {
	t.Helper()
	indented := "  " + strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ")
	pod := manifesttest.Pod(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: default}\nspec:\n"+indented+"\n")
	defaults.Pod(pod)
	c := &check.Checker{Pod: pod}
	validate(c, field.NewPath("spec"))
	all := make([]string, len(c.Errs))
	for i, e := range c.Errs {
		all[i] = e.Error()
	}
	return all
}
