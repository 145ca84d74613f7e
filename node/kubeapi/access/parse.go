package access

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"monopod/node/kubeapi/kinds"
)

// ParseRules parses the rules of the configuration: lists by "user:NAME" or "group:NAME" of
//
//	view@team-a                            a role (view, edit, admin), in namespaces or, without @, everywhere
//	pods,pods/log@team-a,team-b            resources to get, list and watch
//	create,delete:jobs.batch@team-a        verbs on resources
//	get:/metrics,/logs/*                   verbs on paths
//	*                                      everything
//
// The error lists all problems.
func ParseRules(bySubject map[string][]string) ([]Rule, error) {
	var rules []Rule
	var errs []error
	for _, subject := range slices.Sorted(maps.Keys(bySubject)) {
		kind, name, _ := strings.Cut(subject, ":")
		if (kind != "user" && kind != "group") || name == "" {
			errs = append(errs, fmt.Errorf("%q is neither user:<name> nor group:<name>", subject))
			continue
		}
		for _, text := range bySubject[subject] {
			parsed, err := parseRule(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %q: %w", subject, text, err))
			}
			for _, r := range parsed {
				r.Source = fmt.Sprintf("the rule %q of %s in apiServer.rules", text, subject)
				if kind == "user" {
					r.Users = []string{name}
				} else {
					r.Groups = []string{name}
				}
				rules = append(rules, r)
			}
		}
	}
	return rules, errors.Join(errs...)
}

// parseRule parses one entry; a role becomes several rules.
func parseRule(text string) ([]Rule, error) {
	verbs, what, hasVerbs := strings.Cut(text, ":")
	if !hasVerbs {
		verbs, what = "", text
	}
	what, in, limited := strings.Cut(what, "@")
	var namespaces []string
	if limited {
		namespaces = strings.Split(in, ",")
		for _, ns := range namespaces {
			if errs := validation.IsDNS1123Label(ns); len(errs) > 0 {
				return nil, fmt.Errorf("%q is not the name of a namespace", ns)
			}
		}
	}
	var rules []Rule
	switch {
	case !hasVerbs && slices.Contains(Roles(), what):
		rules = rightsOf(what)
		if what == RoleAdmin && !limited {
			rules[0].Paths = []string{every}
		}
	case !hasVerbs && what == every:
		rules = []Rule{{Verbs: []string{every}, Resources: []string{every}}}
		if !limited {
			rules[0].Paths = []string{every}
		}
	case strings.HasPrefix(what, "/"):
		return pathRule(verbs, what, limited)
	default:
		r, err := resourceRule(verbs, what)
		if err != nil {
			return nil, err
		}
		rules = []Rule{r}
	}
	for i := range rules {
		rules[i].Namespaces = namespaces
	}
	return rules, nil
}

// pathRule parses permissions on paths.
func pathRule(verbs, paths string, limited bool) ([]Rule, error) {
	r := Rule{Verbs: []string{"get", "head"}, Paths: strings.Split(paths, ",")}
	if verbs != "" {
		r.Verbs = strings.Split(verbs, ",")
	}
	for _, v := range r.Verbs {
		if !slices.Contains([]string{"get", "head", "post", "put", "patch", "delete", "options", every}, v) {
			return nil, fmt.Errorf("%q is not the method of a path: use get, head, post, put, patch, delete, options or *", v)
		}
	}
	for _, p := range r.Paths {
		if !strings.HasPrefix(p, "/") || strings.Contains(strings.TrimSuffix(p, every), every) {
			return nil, fmt.Errorf("%q is not a path: it begins with /, and may end with *", p)
		}
	}
	if limited {
		return nil, errors.New("a path is in no namespace: remove what follows @")
	}
	return []Rule{r}, nil
}

// resourceRule parses permissions on resources.
func resourceRule(verbs, resources string) (Rule, error) {
	r := Rule{Verbs: readVerbs(), Resources: strings.Split(resources, ",")}
	if verbs != "" {
		r.Verbs = strings.Split(verbs, ",")
	}
	known := append(append(readVerbs(), writeVerbs()...), every)
	for _, v := range r.Verbs {
		if !slices.Contains(known, v) {
			return Rule{}, fmt.Errorf("%q is not a verb: use %s", v, strings.Join(known, ", "))
		}
	}
	for _, name := range r.Resources {
		if !knownResource(name) {
			return Rule{}, fmt.Errorf("%q is neither a role (%s), nor a resource as pods, pods/log or deployments.apps, nor a path", name, strings.Join(Roles(), ", "))
		}
	}
	return r, nil
}

// knownResource reports whether the resource name matches a served resource.
func knownResource(name string) bool {
	if name == every {
		return true
	}
	resource, group, sub := splitResource(name)
	if strings.Contains(name, "/") && sub == "" {
		return false
	}
	switch name {
	case "pods/" + privileged, "secrets/" + sources:
		return true
	}
	return slices.ContainsFunc(kinds.All(), func(k *kinds.Kind) bool {
		return (resource == every && sub != "" || resource == k.Plural) && (group == "" || group == k.Group) &&
			(sub == "" || sub == every || k.Subresource(sub) != nil)
	})
}
