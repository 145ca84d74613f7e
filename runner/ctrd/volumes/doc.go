// Package volumes opens paths below a volume so that they cannot lead out of it, bind-mounts what it opened, and measures volumes.
// It must not know pods: its callers decide which volume is where, and when it is removed.
//
// The content of a volume is hostile, and may change at any time. No goroutines.
package volumes
