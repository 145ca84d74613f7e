// Package access authorizes requests to monopod's Kubernetes API: users, roles, rules, and the access reviews.
//
// It must not authenticate: the listener and the socket put the user into the request context. It must not know where objects come from,
// and does no I/O.
//
// Goroutines: none.
package access

import (
	"context"
	"slices"
)

// User is the authenticated client of a request.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// Groups with a role on the whole machine.
const (
	GroupAdmin = "monopod:admin"
	GroupEdit  = "monopod:edit"
	GroupView  = "monopod:view"
	// GroupMasters may do everything, as in Kubernetes. The machine's root user is a member.
	GroupMasters = "system:masters"
)

// Authenticated returns the user as a member of system:authenticated.
func (u User) Authenticated() User {
	if !slices.Contains(u.Groups, GroupAuthenticated) {
		u.Groups = append(slices.Clone(u.Groups), GroupAuthenticated)
	}
	return u
}

// Well-known users and groups of Kubernetes.
const (
	Anonymous            = "system:anonymous"
	GroupUnauthenticated = "system:unauthenticated"
	GroupAuthenticated   = "system:authenticated"
)

// Attributes describe a request: a verb on a resource, or on a path.
type Attributes struct {
	User User
	// Verb is get, list, watch, create, update, patch, delete or deletecollection; for paths, the method in lower case.
	Verb string
	// Group is the API group of Resource; empty for the core group.
	Group, Resource, Subresource string
	Namespace, Name              string
	// Path is the path of a request without a resource.
	Path string
}

// Policy authorizes requests of users.
type Policy interface {
	// Allows reports whether a request is allowed, with the reason in both cases.
	Allows(a Attributes) (allowed bool, reason string)
}

type userKey struct{}

// WithUser returns a context with the user of a request.
func WithUser(ctx context.Context, u User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// UserOf returns the user of a request; without one, the anonymous user.
func UserOf(ctx context.Context) User {
	if u, ok := ctx.Value(userKey{}).(User); ok {
		return u
	}
	return User{Name: Anonymous, Groups: []string{GroupUnauthenticated}}
}

// Root is the user of requests over the socket, which only root can open.
func Root() User {
	return User{Name: "root", Groups: []string{GroupMasters, GroupAuthenticated}}
}
