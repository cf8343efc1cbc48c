//go:build tools

// Package tools names the program that is built here, Compose v2, so that its modules are pinned.
package tools

import _ "github.com/docker/compose/v2/cmd"
