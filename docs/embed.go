// Package docs holds the pages of this folder for `monopod docs`.
//
// It must not hold anything else than text. It has no goroutines.
package docs

import "embed"

// Pages are the pages for users: TOPIC.md for each topic.
//
//go:embed *.md
var Pages embed.FS

// Man are the manual pages.
//
//go:embed man
var Man embed.FS
