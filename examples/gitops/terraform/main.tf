# Each file of ../subscriptions.d is one subscription, named like the file.

terraform {
  required_version = ">= 1.5"
  required_providers {
    restapi = {
      source  = "Mastercard/restapi"
      version = "~> 2.0"
    }
  }
}

variable "sidecar" {
  description = "URL of a sidecar's REST API."
  type        = string
  default     = "http://127.0.0.1:8642"
}

variable "token" {
  description = "An editor's token. Set it with TF_VAR_token. Null: the sidecar has no tokens."
  type        = string
  default     = null
  sensitive   = true
}

variable "ca_file" {
  description = "PEM file with the CA of the sidecar's certificate, for https. Null: the system's CAs."
  type        = string
  default     = null
}

locals {
  # What the sidecar answers for fields that a file leaves out. With all fields in `data`, Terraform
  # notices what somebody else changes.
  defaults = {
    interval_ms = 300000
    match       = {}
    enabled     = true
    expires_at  = null
    temporality = null
    labels      = {}
    description = ""
  }

  folder = "${path.module}/../subscriptions.d"
  subscriptions = {
    for file in fileset(local.folder, "*.yaml") :
    trimsuffix(file, ".yaml") => yamldecode(file("${local.folder}/${file}"))
  }
}

provider "restapi" {
  uri           = var.sidecar
  root_ca_file  = var.ca_file
  create_method = "PUT"
  headers = merge(
    { "Content-Type" = "application/json" },
    var.token == null ? {} : { "Authorization" = "Bearer ${var.token}" },
  )

  write_returns_object = true
}

resource "restapi_object" "subscription" {
  for_each = local.subscriptions

  path        = "/v1/subscriptions"
  create_path = "/v1/subscriptions/{id}"
  object_id   = each.key
  data        = jsonencode(merge(local.defaults, { name = each.key }, each.value))

  # The sidecar's own fields.
  ignore_changes_to = ["state", "changed_by", "changed_at", "warnings"]
}
