"""Writes each push as a record to a Kafka topic, of this or of another cluster.

Owns the record's form: its key, its value and its headers. confluent-kafka is loaded when a plugin is made,
so that a receiver without it works with its other plugins.
"""

from plugins.kafka_topic.config import KafkaTopicConfig
from plugins.kafka_topic.receiver import KafkaTopicReceiver

__all__ = ["KafkaTopicConfig", "KafkaTopicReceiver"]
