package access_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/kinds"
)

func member(groups ...string) access.User {
	return access.User{Name: "u", Groups: groups}.Authenticated()
}

// request parses "VERB RESOURCE[.GROUP][/SUB] [NAMESPACE]" or "VERB /PATH".
func request(text string, u access.User) access.Attributes {
	words := strings.Fields(text)
	a := access.Attributes{User: u, Verb: words[0]}
	if strings.HasPrefix(words[1], "/") {
		a.Path = words[1]
		return a
	}
	name, sub, _ := strings.Cut(words[1], "/")
	a.Resource, a.Group, _ = strings.Cut(name, ".")
	a.Subresource = sub
	if len(words) > 2 {
		a.Namespace = words[2]
	}
	return a
}

func TestRolesOnRequests(t *testing.T) {
	const view, edit, admin = "v", "e", "a"
	for text, roles := range map[string]string{
		"list pods default":                                     "vea",
		"watch pods":                                            "vea",
		"get pods/log default":                                  "vea",
		"get deployments.apps/scale default":                    "vea",
		"get deployments.apps/status default":                   "vea",
		"list nodes":                                            "vea",
		"list nodes.metrics.k8s.io":                             "vea",
		"list pods.metrics.k8s.io default":                      "vea",
		"list sources.monopod.dev":                              "vea",
		"get configmaps default":                                "vea",
		"list persistentvolumes":                                "vea",
		"get secrets default":                                   "ea",
		"create secrets default":                                "ea",
		"create pods default":                                   "ea",
		"delete pods default":                                   "ea",
		"deletecollection configmaps default":                   "ea",
		"create pods/eviction default":                          "ea",
		"create pods/exec default":                              "ea",
		"get pods/exec default":                                 "ea",
		"get pods/attach default":                               "ea",
		"get pods/portforward default":                          "ea",
		"get pods/proxy default":                                "ea",
		"create pods/proxy default":                             "ea",
		"delete services/proxy default":                         "ea",
		"patch deployments.apps/scale default":                  "ea",
		"patch pods/ephemeralcontainers default":                "ea",
		"patch pods/status default":                             "ea",
		"create namespaces":                                     "ea",
		"create leases.coordination.k8s.io default":             "ea",
		"get secrets/sources default":                           "a",
		"create pods/privileged default":                        "a",
		"patch nodes":                                           "a",
		"patch nodes/status":                                    "a",
		"get nodes/proxy":                                       "a",
		"create nodes/proxy":                                    "a",
		"delete images.monopod.dev":                             "a",
		"create serviceaccounts/token default":                  "a",
		"create tokenreviews.authentication.k8s.io":             "a",
		"create subjectaccessreviews.authorization.k8s.io":      "a",
		"create localsubjectaccessreviews.authorization.k8s.io": "a",
		"impersonate users":                                     "a",
		"* *":                                                   "a",
		"get /metrics":                                          "a",
		"create selfsubjectaccessreviews.authorization.k8s.io":  "vea-",
		"create selfsubjectreviews.authentication.k8s.io":       "vea-",
		"create selfsubjectrulesreviews.authorization.k8s.io":   "vea-",
		"get /apis/apps/v1":                                     "vea-",
		"get /openapi/v3":                                       "vea-",
		"get /openid/v1/jwks":                                   "vea-",
		"get /.well-known/openid-configuration":                 "vea-",
		"get /openid/v1":                                        "a",
		"get /.well-known/other":                                "a",
		"get /version":                                          "vea-0",
		"get /readyz/node":                                      "vea-0",
		"get /healthz":                                          "vea-0",
		"get /":                                                 "vea-",
		"post /version":                                         "a",
		"get /healthzz":                                         "a",
	} {
		users := map[string]access.User{
			view: member(access.GroupView), edit: member(access.GroupEdit), admin: member(access.GroupAdmin),
			"-": member(), "0": access.UserOf(context.Background()),
		}
		p := access.NewPolicy(nil)
		for name, u := range users {
			got, reason := p.Allows(request(text, u))
			if want := strings.Contains(roles, name); got != want || got == (reason == "") {
				t.Errorf("%s as %s: %v (%s), want %v", text, name, got, reason, want)
			}
		}
		if ok, _ := p.Allows(request(text, access.Root())); !ok {
			t.Errorf("root may not %s", text)
		}
	}
}

// TestEachKindIsInARole: a kind that is added to the table is classified.
func TestEachKindIsInARole(t *testing.T) {
	p := access.NewPolicy(nil)
	notForView := []string{"secrets"}
	onlyAdminWrites := []string{"nodes", "clusterroles", "clusterrolebindings"}
	for _, k := range kinds.All() {
		for _, verb := range k.Verbs {
			a := access.Attributes{Verb: verb, Group: k.Group, Resource: k.Plural}
			reads := slices.Contains([]string{"get", "list", "watch"}, verb)
			for _, tt := range []struct {
				group string
				want  bool
			}{
				{access.GroupView, reads && !slices.Contains(notForView, k.Plural)},
				{access.GroupEdit, !k.Virtual && (reads || !slices.Contains(onlyAdminWrites, k.Plural))},
				{access.GroupAdmin, true},
				{access.GroupMasters, true},
			} {
				a.User = access.User{Name: "u", Groups: []string{tt.group}}
				if got, _ := p.Allows(a); got != tt.want {
					t.Errorf("%s %s %s: %v", tt.group, verb, k.Resource().GroupResource(), got)
				}
			}
		}
	}
}

func TestRules(t *testing.T) {
	for _, tt := range []struct {
		rule, allowed, refused string
	}{
		{"view@a", "get pods a; list configmaps a; get pods/log a; get namespaces a", "get pods b; list pods; get secrets a; list nodes; get pods/exec a; get namespaces b; list namespaces"},
		{"edit@a,b", "create pods a; get secrets b; get pods/exec a", "create pods c; create pods/privileged a; create namespaces; patch nodes"},
		{"admin@a", "create pods/privileged a; get secrets/sources a; create serviceaccounts/token a", "create pods b; list nodes; get /metrics"},
		{"admin", "patch nodes; get /metrics; * *", ""},
		{"*", "patch nodes; get /metrics; * *", ""},
		{"*@a", "delete pods a", "delete pods b; get /metrics"},
		{"pods", "get pods a; list pods; watch pods b; list pods.metrics.k8s.io", "create pods a; get pods/log a; get configmaps a"},
		{"pods,pods/log@a", "get pods/log a; list pods a", "list pods b; get pods/exec a"},
		{"create,delete:jobs.batch@a", "create jobs.batch a", "get jobs.batch a; create jobs.other a"},
		{"*:pods", "delete pods; deletecollection pods a", "create pods/exec a; create pods/privileged a"},
		{"*:pods/*@a", "get pods/exec a; create pods/eviction a", "get pods a; create pods/privileged a"},
		{"*:secrets,secrets/sources@a", "get secrets/sources a", "get secrets/sources b"},
		{"create:pods,pods/privileged", "create pods/privileged a", "get pods a"},
		{"update:*/scale@a", "update deployments.apps/scale a", "update deployments.apps a"},
		{"create:pods/exec", "get pods/exec a; create pods/exec a", "get pods/attach a"},
		{"get:pods/exec", "", "get pods/exec a"},
		{"/metrics", "get /metrics; head /metrics", "post /metrics; get /metrics/x; get pods a"},
		{"*:/debug/*", "post /debug/x", "get /debug; get /metrics"},
		{"get,list,watch:*", "list secrets; get secrets/sources a", "create pods a; create pods/privileged a"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			rules, err := access.ParseRules(map[string][]string{"user:u": {tt.rule}, "group:ops": {tt.rule}})
			if err != nil {
				t.Fatal(err)
			}
			p := access.NewPolicy(rules)
			for _, u := range []access.User{{Name: "u"}, {Name: "x", Groups: []string{"ops"}}} {
				for want, texts := range map[bool]string{true: tt.allowed, false: tt.refused} {
					for text := range strings.SplitSeq(texts, "; ") {
						if text == "" {
							continue
						}
						got, reason := p.Allows(request2(text, u))
						if got != want {
							t.Errorf("%s of %s: %v", text, u.Name, got)
						}
						if got && !strings.Contains(reason, tt.rule) {
							t.Errorf("the reason is %q", reason)
						}
					}
				}
			}
			if got, _ := p.Allows(request("list pods a", access.User{Name: "ops", Groups: []string{"u"}})); got {
				t.Error("a user is taken for a group")
			}
		})
	}
}

// request2 is request, where the second word of `get namespaces X` is a name.
func request2(text string, u access.User) access.Attributes {
	a := request(text, u)
	if a.Resource == "namespaces" {
		a.Name, a.Namespace = a.Namespace, ""
	}
	return a
}

func TestRulesThatMeanNothing(t *testing.T) {
	for text, want := range map[string]string{
		"pod":               `"pod" is neither a role (view, edit, admin), nor a resource`,
		"views@a":           `"views" is neither a role`,
		"read:pods":         `"read" is not a verb: use get, list, watch, create, update, patch, delete, deletecollection, *`,
		"pods@A_b":          `"A_b" is not the name of a namespace`,
		"pods@":             `"" is not the name of a namespace`,
		"":                  `"" is neither a role`,
		"pods/":             `"pods/" is neither a role`,
		"pods/nothing":      `"pods/nothing" is neither`,
		"pods.apps":         `"pods.apps" is neither`,
		"create:view":       `"view" is neither`,
		"/metrics@a":        "a path is in no namespace",
		"create:/metrics":   `"create" is not the method of a path`,
		"/a*b":              `"/a*b" is not a path`,
		"/a,b":              `"b" is not a path`,
		"configmaps/status": `"configmaps/status" is neither`,
	} {
		_, err := access.ParseRules(map[string][]string{"user:ci": {text}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "user:ci") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	_, err := access.ParseRules(map[string][]string{"ci": {"view"}, "user:": {"view"}, "group:x": {"nope"}})
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("all problems are reported: %v", err)
	}
}

func TestCheckAnswersInTheWordsOfKubernetes(t *testing.T) {
	p := access.NewPolicy(nil)
	for text, want := range map[string]string{
		"list pods default":            `pods is forbidden: User "u" cannot list resource "pods" in API group "" in the namespace "default"`,
		"patch nodes/status":           `nodes is forbidden: User "u" cannot patch resource "nodes/status" in API group "" at the cluster scope`,
		"delete deployments.apps team": `deployments.apps is forbidden: User "u" cannot delete resource "deployments" in API group "apps" in the namespace "team"`,
		"get /metrics":                 `forbidden: User "u" cannot get path "/metrics"`,
	} {
		err := access.Check(p, request(text, access.User{Name: "u"}))
		if !apierrors.IsForbidden(err) || err.Error() != want {
			t.Errorf("%s: %v", text, err)
		}
		if s, ok := err.(apierrors.APIStatus); !ok || s.Status().Code != http.StatusForbidden {
			t.Errorf("%s: no Status with code 403: %v", text, err)
		}
	}
	if err := access.Check(p, request("list pods default", member(access.GroupView))); err != nil {
		t.Error(err)
	}
	a := request("get pods default", access.User{Name: "u"})
	a.Name = "web"
	if err := access.Check(p, a); err == nil || !strings.HasPrefix(err.Error(), `pods "web" is forbidden: User "u" cannot get`) {
		t.Error(err)
	}
}

func TestUserOfAContext(t *testing.T) {
	if u := access.UserOf(context.Background()); u.Name != access.Anonymous || !slices.Equal(u.Groups, []string{access.GroupUnauthenticated}) {
		t.Errorf("without a user: %+v", u)
	}
	u := access.User{Name: "alice", Groups: []string{"ops"}}
	if got := access.UserOf(access.WithUser(context.Background(), u)); got.Name != "alice" {
		t.Errorf("%+v", got)
	}
	both := u.Authenticated().Authenticated()
	if !slices.Equal(both.Groups, []string{"ops", access.GroupAuthenticated}) || len(u.Groups) != 1 {
		t.Errorf("%v, %v", both.Groups, u.Groups)
	}
	for _, role := range access.Roles() {
		if access.GroupOf(role) != "monopod:"+role {
			t.Error(role, access.GroupOf(role))
		}
	}
	if access.GroupOf("other") != "" {
		t.Error("an unknown role has a group")
	}
}
